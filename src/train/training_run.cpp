#include "train/training_run.h"

#include <omp.h>

#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/clock.h"
#include "train/batch_plan.h"
#include "train/checkpoint.h"
#include "train/durable_file.h"
#include "train/loss_curve.h"
#include "train/schedule.h"
#include "train/settings.h"
#include "train/start_point.h"
#include "train/version.h"

namespace tessera::train {
namespace {

constexpr double kMsPerSecond = 1e3;
constexpr double kSecondsPerMinute = 60;
const char* const kNanSteps = "nan_steps";
const char* const kNonFiniteInARow = "non_finite_in_a_row";

/// 0 if the checkpoint does not have it.
std::int64_t counter_of(const CheckpointState& state, const char* name) {
    std::int64_t value = 0;
    if (const auto found = state.extras.find(name); found != state.extras.end()) {
        std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    }
    return value;
}

std::string format_count(double value) {
    if (value >= 1e9) return fmt::format("{:.2f} G", value / 1e9);
    if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
    if (value >= 1e3) return fmt::format("{:.1f} k", value / 1e3);
    return fmt::format("{:.0f}", value);
}

}  // namespace

TrainingRun::TrainingRun(Config config)
    : started_s_(core::now_s()), config_(std::move(config)), data_(open_run_data(config_)), guard_(config_) {
    if (config_.device.threads > 0) omp_set_num_threads(static_cast<int>(config_.device.threads));
    engine_ = std::make_unique<Engine>(engine_settings(config_));
    resume();
    total_steps_ = total_steps(config_, step_, consumed_samples_);
    total_samples_ =
            BatchPlan(config_.batch).samples_after(consumed_samples_, std::max<std::int64_t>(0, total_steps_ - step_));
}

/// Whatever the disk would refuse later, it refuses before the first step.
void TrainingRun::prepare_folders() {
    std::error_code failure;
    std::filesystem::create_directories(config_.run.directory, failure);
    if (failure) {
        core::raise<core::EnvironmentError>(
                "cannot create the run's folder {} ({}); set run.directory to a place that can be written",
                config_.run.directory, failure.message());
    }
    const std::vector<TensorSlice> slices = logical_slices(*engine_);
    prepare_checkpoint_root(config_.checkpoint.directory, checkpoint_bytes(slices), largest_file_bytes(slices));
    replace_file(config_.run.directory + "/config.toml", to_toml(config_));
    keep_tokenizer(config_);
}

void TrainingRun::resume() {
    StartPoint start = find_start(config_);
    start_description_ = start.description;
    if (!start.checkpoint) {
        engine_->initialise();
        return;
    }
    load_engine(*engine_, *start.checkpoint, start.load);
    started_from_ = start.checkpoint->path();
    if (start.load == LoadParts::weights_only) return;
    const CheckpointState& state = start.checkpoint->state();
    step_ = resumed_step_ = saved_step_ = state.step;
    consumed_samples_ = state.consumed_samples;
    skipped_steps_ = state.skipped_steps;
    guard_.restore(counter_of(state, kNanSteps), counter_of(state, kNonFiniteInARow));
    take_up_blend(data_, state);
}

std::vector<std::string> TrainingRun::describe() const {
    const layers::ModelConfig& model = engine_->model().config();
    std::vector<std::string> lines;
    lines.push_back(fmt::format("model: {} with {} parameters ({} layers, hidden {}, {} heads, vocabulary {}), {}",
                                name_of(config_.model.family),
                                format_count(static_cast<double>(layers::parameter_count(model))), model.num_layers,
                                model.hidden_size, model.num_attention_heads, model.vocab_size,
                                core::name_of(model.dtype)));
    const std::vector<std::string> data = describe_run_data(data_, config_, total_steps_ - step_, consumed_samples_);
    lines.insert(lines.end(), data.begin(), data.end());
    lines.push_back(fmt::format(
            "run: {} steps of {}, micro-batches of {}; decay {} on matrices and embeddings, none on "
            "biases and norms",
            total_steps_, describe_batches(config_), config_.batch.micro_batch_size, config_.optimizer.weight_decay));
    lines.push_back("flops: model FLOPs, with the causal half of attention and without recomputation");
    lines.push_back(engine_->backend().description());
    lines.push_back(start_description_);
    return lines;
}

void TrainingRun::train_one_step(RunReport& report) {
    const double begin = core::now_s();
    const data::Batch batch = next_batch(data_);
    const double waited = core::now_s() - begin;
    const SchedulePosition position =
            schedule_position(config_.schedule, engine_->optimizer().updates(), consumed_samples_ * batch.seq_length,
                              batch.num_samples * batch.seq_length);
    const double lr = learning_rate(config_.schedule, config_.optimizer, position);
    const StepResult result = engine_->train_step(batch, config_.batch.micro_batch_size, lr);
    const double seconds = core::now_s() - begin;
    guard_.account(result, {.step = step_ + 1,
                            .first_sample = consumed_samples_,
                            .num_samples = batch.num_samples,
                            .saved_step = saved_step_});
    ++step_;
    consumed_samples_ += batch.num_samples;
    skipped_steps_ += result.updated ? 0 : 1;
    const auto tokens = static_cast<double>(batch.num_samples * batch.seq_length);
    report.step({.step = step_,
                 .total_steps = total_steps_,
                 .total_samples = total_samples_,
                 .consumed_samples = consumed_samples_,
                 .consumed_tokens = consumed_samples_ * batch.seq_length,
                 .global_batch_size = batch.num_samples,
                 .loss = result.loss,
                 .grad_norm = result.grad_norm,
                 .learning_rate = lr,
                 .loss_scale = result.loss_scale,
                 .skipped = !result.updated,
                 .skipped_steps = skipped_steps_,
                 .nan_steps = guard_.nan_steps(),
                 .elapsed_ms = seconds * kMsPerSecond,
                 .tokens_per_s = tokens / seconds,
                 .tflops = result.model_flops / seconds / 1e12,
                 .evaluation_ms = std::exchange(evaluation_ms_, 0.0),
                 .checkpoint_ms = std::exchange(checkpoint_ms_, 0.0)});
    summary_.seconds += seconds;
    summary_.data_wait_seconds += waited;
    summary_.model_flops += result.model_flops;
    summary_.tokens += batch.num_samples * batch.seq_length;
    summary_.last_loss = result.loss;
}

void TrainingRun::evaluate(RunReport& report) {
    const double begin = core::now_s();
    const kernels::OpAccount of_steps = engine_->backend().account();
    LossSum sum;
    for_each_validation_batch(data_, config_, [&](const data::Batch& batch) {
        const LossSum part = engine_->evaluate(batch, config_.batch.micro_batch_size);
        sum.loss += part.loss;
        sum.tokens += part.tokens;
    });
    if (sum.tokens == 0) core::raise<core::DataError>("the validation data carries no loss: every target is masked");
    const double loss = sum.loss / static_cast<double>(sum.tokens);
    const EvaluationMetrics metrics{.step = step_,
                                    .consumed_samples = consumed_samples_,
                                    .tokens = sum.tokens,
                                    .loss = loss,
                                    .perplexity = std::exp(loss),
                                    .bits_per_byte = validation_bits_per_byte(data_, loss),
                                    .elapsed_ms = (core::now_s() - begin) * kMsPerSecond};
    evaluation_ms_ += metrics.elapsed_ms;
    summary_.evaluation_seconds += metrics.elapsed_ms / kMsPerSecond;
    engine_->backend().account() = of_steps;
    summary_.validation = metrics;
    report.evaluation(metrics);
}

CheckpointState TrainingRun::checkpoint_state() const {
    CheckpointState state;
    state.step = step_;
    state.consumed_samples = consumed_samples_;
    state.consumed_tokens = consumed_samples_ * config_.model.seq_length;
    state.skipped_steps = skipped_steps_;
    state.config_toml = to_toml(config_);
    state.program_version = kVersion;
    state.extras[kNanSteps] = std::to_string(guard_.nan_steps());
    state.extras[kNonFiniteInARow] = std::to_string(guard_.in_a_row());
    keep_blend(data_, state);
    describe_engine(*engine_, state);
    return state;
}

void TrainingRun::save(RunReport& report) {
    const double begin = core::now_s();
    const CheckpointState state = checkpoint_state();
    const std::vector<TensorSlice> slices = logical_slices(*engine_);
    summary_.checkpoint = write_checkpoint(
            {.root = config_.checkpoint.directory,
             .state = state,
             .slices = slices,
             .retention = {.keep = config_.checkpoint.keep, .keep_every = config_.checkpoint.keep_every},
             .protected_path = started_from_});
    saved_step_ = step_;
    const double seconds = core::now_s() - begin;
    checkpoint_ms_ += seconds * kMsPerSecond;
    summary_.saving_seconds += seconds;
    report.message(fmt::format("saved {} in {:.2f} s", summary_.checkpoint, seconds));
}

bool TrainingRun::evaluates_after(std::int64_t step) const {
    if (!data_.validation) return false;
    return step == total_steps_ || (config_.evaluation.interval > 0 && step % config_.evaluation.interval == 0);
}

void TrainingRun::finish(RunReport& report, bool stopped) {
    if (saved_step_ != step_) save(report);
    report.finish();
    const MetricsHistory history = read_metrics(config_.run.directory + "/metrics.jsonl");
    if (config_.log.loss_curve) {
        summary_.loss_curve = config_.run.directory + "/loss.svg";
        write_loss_curve(summary_.loss_curve, loss_curve_of(history, config_.run.name));
    }
    if (config_.log.tensorboard) summary_.tensorboard = tensorboard_folder(config_);
    summary_.best_validation = best_evaluation(history);
    summary_.exit_code = stopped ? core::ExitCode::stopped_after_save : core::ExitCode::success;
}

void TrainingRun::summarise() {
    summary_.steps = step_ - resumed_step_;
    summary_.last_step = step_;
    summary_.total_steps = total_steps_;
    summary_.skipped_steps = skipped_steps_;
    summary_.profile = {.operations = engine_->backend().account(),
                        .steps = summary_.steps,
                        .seconds = summary_.seconds,
                        .data_wait_seconds = summary_.data_wait_seconds,
                        .memory = engine_->pool().statistics(),
                        .saved_bytes = engine_->peak_saved_bytes(),
                        .peak_resident_bytes = peak_resident_bytes()};
    if (summary_.seconds >= kSecondsWorthACeiling) {
        summary_.ceiling = measure_matmul_ceiling(engine_->backend(), engine_->stream());
    }
}

RunSummary TrainingRun::run(const StopRequest& stop) {
    const double begin = core::now_s();
    prepare_folders();
    engine_->backend().account().reset();
    RunReport report(config_, config_.run.directory, resumed_step_, total_steps_);
    for (const std::string& line : describe()) report.message(line);
    start_reading(data_, config_, consumed_samples_);
    if (config_.evaluation.at_start && data_.validation && step_ == 0) evaluate(report);
    bool out_of_time = false;
    while (step_ < total_steps_ && !stop.requested() && !out_of_time) {
        train_one_step(report);
        if (evaluates_after(step_)) evaluate(report);
        if (config_.checkpoint.interval > 0 && step_ % config_.checkpoint.interval == 0) save(report);
        out_of_time = config_.run.exit_minutes > 0 &&
                      core::now_s() - started_s_ >= config_.run.exit_minutes * kSecondsPerMinute;
    }
    const bool stopped = step_ < total_steps_;
    if (stopped) {
        const std::string reason = stop.requested()
                                           ? fmt::format("on signal {}", stop.signal())
                                           : fmt::format("as run.exit_minutes = {} are over", config_.run.exit_minutes);
        report.message(fmt::format("stopping {} after step {}", reason, step_));
    }
    finish(report, stopped);
    summary_.wall_seconds = core::now_s() - begin;
    summarise();
    return summary_;
}

}  // namespace tessera::train
