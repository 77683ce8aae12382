#include "train/metrics.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "core/error.h"
#include "core/log.h"
#include "train/durable_file.h"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;
using Record = std::variant<StepMetrics, EvaluationMetrics>;

/// Null stands for a number that is not finite (JSON has none).
double number_at(const Json& json, const char* key) {
    const Json& value = json.at(key);
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

StepMetrics step_from(const Json& json) {
    StepMetrics metrics;
    json.at("step").get_to(metrics.step);
    json.at("total_steps").get_to(metrics.total_steps);
    json.at("consumed_samples").get_to(metrics.consumed_samples);
    json.at("consumed_tokens").get_to(metrics.consumed_tokens);
    json.at("global_batch_size").get_to(metrics.global_batch_size);
    metrics.loss = number_at(json, "loss");
    metrics.grad_norm = number_at(json, "grad_norm");
    metrics.learning_rate = number_at(json, "learning_rate");
    metrics.loss_scale = number_at(json, "loss_scale");
    json.at("skipped").get_to(metrics.skipped);
    json.at("skipped_steps").get_to(metrics.skipped_steps);
    json.at("nan_steps").get_to(metrics.nan_steps);
    metrics.elapsed_ms = number_at(json, "elapsed_ms");
    metrics.tokens_per_s = number_at(json, "tokens_per_s");
    metrics.tflops = number_at(json, "tflops");
    metrics.evaluation_ms = number_at(json, "evaluation_ms");
    metrics.checkpoint_ms = number_at(json, "checkpoint_ms");
    return metrics;
}

EvaluationMetrics evaluation_from(const Json& json) {
    EvaluationMetrics metrics;
    json.at("step").get_to(metrics.step);
    json.at("consumed_samples").get_to(metrics.consumed_samples);
    json.at("tokens").get_to(metrics.tokens);
    metrics.loss = number_at(json, "validation_loss");
    metrics.perplexity = number_at(json, "perplexity");
    if (json.contains("bits_per_byte")) metrics.bits_per_byte = number_at(json, "bits_per_byte");
    metrics.elapsed_ms = number_at(json, "elapsed_ms");
    return metrics;
}

/// Calls use(record, line) for each complete line. A last line without a line end is what a crash leaves: ignored.
template <typename Use>
void for_each_record(const std::string& path, const std::string& text, Use&& use) {
    std::size_t begin = 0;
    for (std::int64_t number = 1;; ++number) {
        const std::size_t end = text.find('\n', begin);
        if (end == std::string::npos) return;
        const std::string_view line = std::string_view(text).substr(begin, end - begin);
        begin = end + 1;
        try {
            const Json json = Json::parse(line);
            if (json.contains("validation_loss")) {
                use(Record(evaluation_from(json)), line);
            } else {
                use(Record(step_from(json)), line);
            }
        } catch (const nlohmann::json::exception&) {
            core::raise<core::DataError>(
                    "{}:{}: this line is not a record of metrics.jsonl; move the file away or mend it", path, number);
        }
    }
}

std::int64_t step_of(const Record& record) {
    return std::visit([](const auto& metrics) { return metrics.step; }, record);
}

/// Moves a file of an earlier run out of the way, so that starting anew loses nothing.
void keep_previous(const std::string& path) {
    namespace fs = std::filesystem;
    const fs::path original(path);
    for (int number = 1;; ++number) {
        const fs::path kept = original.parent_path() / (original.stem().string() + ".previous-" +
                                                        std::to_string(number) + original.extension().string());
        if (fs::exists(kept)) continue;
        fs::rename(original, kept);
        core::log_info("the metrics of an earlier run are kept in " + kept.string());
        return;
    }
}

void drop_later_records(const std::string& path, std::int64_t resumed_step) {
    const std::string text = read_text_file(path);
    std::string kept;
    for_each_record(path, text, [&](const Record& record, std::string_view line) {
        if (step_of(record) > resumed_step) return;
        kept += line;
        kept += '\n';
    });
    if (kept != text) replace_file(path, kept);
}

/// The path, once what an earlier process left there stands as this one needs it.
std::string prepared(std::string path, std::int64_t resumed_step) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && std::filesystem::file_size(path, error) > 0) {
        if (resumed_step == 0) {
            keep_previous(path);
        } else {
            drop_later_records(path, resumed_step);
        }
    }
    return path;
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
    const Json json = {{"step", metrics.step},
                       {"total_steps", metrics.total_steps},
                       {"consumed_samples", metrics.consumed_samples},
                       {"consumed_tokens", metrics.consumed_tokens},
                       {"global_batch_size", metrics.global_batch_size},
                       {"loss", metrics.loss},
                       {"grad_norm", metrics.grad_norm},
                       {"learning_rate", metrics.learning_rate},
                       {"loss_scale", metrics.loss_scale},
                       {"skipped", metrics.skipped},
                       {"skipped_steps", metrics.skipped_steps},
                       {"nan_steps", metrics.nan_steps},
                       {"elapsed_ms", metrics.elapsed_ms},
                       {"tokens_per_s", metrics.tokens_per_s},
                       {"tflops", metrics.tflops},
                       {"evaluation_ms", metrics.evaluation_ms},
                       {"checkpoint_ms", metrics.checkpoint_ms}};
    return json.dump();
}

std::string to_json(const EvaluationMetrics& metrics) {
    Json json = {{"step", metrics.step},
                 {"consumed_samples", metrics.consumed_samples},
                 {"tokens", metrics.tokens},
                 {"validation_loss", metrics.loss},
                 {"perplexity", metrics.perplexity},
                 {"elapsed_ms", metrics.elapsed_ms}};
    if (metrics.bits_per_byte) json["bits_per_byte"] = *metrics.bits_per_byte;
    return json.dump();
}

MetricsWriter::MetricsWriter(std::string path, std::int64_t resumed_step)
    : file_(prepared(std::move(path), resumed_step), OpenMode::append) {}

void MetricsWriter::write(const StepMetrics& metrics) {
    file_.write(to_json(metrics) + "\n");
}
void MetricsWriter::write(const EvaluationMetrics& metrics) {
    file_.write(to_json(metrics) + "\n");
}

MetricsHistory read_metrics(const std::string& path) {
    MetricsHistory history;
    for_each_record(path, read_text_file(path), [&](const Record& record, std::string_view) {
        if (const auto* step = std::get_if<StepMetrics>(&record)) {
            history.steps.push_back(*step);
        } else {
            history.evaluations.push_back(std::get<EvaluationMetrics>(record));
        }
    });
    return history;
}

}  // namespace tessera::train
