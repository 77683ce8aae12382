#include "train/run_data.h"

#include <filesystem>
#include <numbers>

#include "core/error.h"
#include "data/integer_array.h"
#include "data/tokenizer.h"
#include "train/batch_plan.h"
#include "train/durable_file.h"

namespace tessera::train {
namespace {

using core::ConfigError;
using core::raise;

const char* const kDataBlend = "data_blend";

data::ShardNames shard_names(const Config& config) {
    data::ShardNames names;
    // "tokens" is the default of both sides and also lets a shard of input_ids through.
    if (config.is_set("data.tokens_dataset")) names.tokens = config.data.tokens_dataset;
    return names;
}

/// vocab_size from the first shard that says so; 0 if it does not.
std::int64_t shard_vocabulary(const Config& config) {
    const std::vector<std::string> paths = data::matching_paths(config.data.train.front().path);
    const auto shard =
            data::ShardReader::open(paths.front(), shard_names(config), std::make_shared<data::OpenDatasets>());
    return shard.identity().vocab_size.value_or(0);
}

/// One rule: the vocabulary is at least the tokenizer's; unset, it is the tokenizer's or else the shards'.
void resolve_vocabulary(Config& config, const std::optional<data::Tokenizer>& tokenizer) {
    const std::int64_t known = tokenizer ? tokenizer->vocab_size() : 0;
    if (config.model.vocab_size == 0) {
        config.model.vocab_size = known > 0 ? known : shard_vocabulary(config);
        if (config.model.vocab_size == 0) {
            raise<ConfigError>("the vocabulary is unknown: set model.vocab_size or data.tokenizer ({} does not say it)",
                               config.data.train.front().path);
        }
    } else if (config.model.vocab_size < known) {
        raise<ConfigError>(
                "model.vocab_size {} is smaller than the {} pieces of the tokenizer {}; leave it out or raise it",
                config.model.vocab_size, known, config.data.tokenizer);
    }
}

std::unique_ptr<data::TokenDataset> open_dataset(const Config& config, const std::vector<DataSource>& sources,
                                                 data::SampleOrder order,
                                                 const std::optional<data::Tokenizer>& tokenizer) {
    data::TokenDatasetArgs args;
    for (const DataSource& source : sources) {
        args.sources.push_back({.paths = {source.path}, .weight = source.weight, .name = source.path});
    }
    args.seed = static_cast<std::uint64_t>(config.run.seed);
    args.seq_length = config.model.seq_length;
    args.vocab_size = config.model.vocab_size;
    args.order = order;
    args.document_mask = config.data.document_mask ? data::DocumentMask::on : data::DocumentMask::off;
    args.names = shard_names(config);
    if (tokenizer) {
        args.eod_id = tokenizer->eod_id();
        args.tokenizer_sha256 = tokenizer->sha256();
    }
    return std::make_unique<data::TokenDataset>(std::move(args));
}

}  // namespace

RunData open_run_data(Config& config) {
    std::optional<data::Tokenizer> tokenizer;
    if (!config.data.tokenizer.empty()) tokenizer = data::Tokenizer::load(config.data.tokenizer);
    resolve_vocabulary(config, tokenizer);
    RunData data;
    data.training = open_dataset(config, config.data.train, data::SampleOrder::shuffled, tokenizer);
    if (!config.data.validation.empty()) {
        data.validation = open_dataset(config, config.data.validation, data::SampleOrder::ordered, tokenizer);
    }
    return data;
}

void keep_blend(const RunData& data, CheckpointState& state) {
    state.extras[kDataBlend] = data::to_json(data.training->blend_state());
}

void take_up_blend(RunData& data, const CheckpointState& state) try {
    const auto saved = state.extras.find(kDataBlend);
    if (saved == state.extras.end()) return;
    data.blend_changes = data.training->resume(data::blend_state_of(saved->second), state.consumed_samples);
} catch (const core::DataError& error) {
    raise<core::CheckpointError>("the checkpoint of step {} cannot be gone on from: {}", state.step, error.what());
}

std::vector<std::string> describe_run_data(const RunData& data, const Config& config, std::int64_t steps_left,
                                           std::int64_t consumed_samples) {
    const std::int64_t total = BatchPlan(config.batch).samples_after(consumed_samples, steps_left);
    std::vector<std::string> lines;
    const std::string text = data.training->describe(total);
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        if (end > begin) lines.push_back("data: " + text.substr(begin, end - begin));
        begin = end + 1;
    }
    for (const std::string& change : data.blend_changes) lines.push_back("data: " + change);
    if (data.validation) {
        lines.push_back(fmt::format("validation: {} samples of {} tokens", data.validation->num_samples(),
                                    config.model.seq_length));
    } else {
        lines.push_back("validation: none");
    }
    return lines;
}

void start_reading(RunData& data, const Config& config, std::int64_t consumed_samples) {
    data.reader = std::make_unique<data::BatchReader>(
            *data.training,
            data::BatchReaderArgs{.schedule = [consumed_samples, plan = BatchPlan(config.batch)](std::int64_t step) {
                const std::int64_t position = plan.samples_after(consumed_samples, step);
                return data::SampleRange{.position = position, .count = plan.size_at(position)};
            }});
}

data::Batch next_batch(RunData& data) {
    return data.reader->next();
}

void for_each_validation_batch(const RunData& data, const Config& config,
                               const std::function<void(const data::Batch&)>& visit) {
    const std::int64_t size = config.batch.global_batch_size;
    const std::int64_t available = data.validation->num_samples();
    const std::int64_t wanted =
            config.evaluation.steps > 0 ? std::min(available, config.evaluation.steps * size) : available;
    data::Batch batch;
    for (std::int64_t position = 0; position < wanted; position += size) {
        data.validation->read_samples(position, std::min(size, wanted - position), batch);
        visit(batch);
    }
}

std::optional<double> validation_bits_per_byte(const RunData& data, double nats_per_token) {
    const std::optional<std::int64_t> bytes = data.validation->text_bytes();
    if (!bytes || *bytes == 0) return std::nullopt;
    return nats_per_token / std::numbers::ln2 * static_cast<double>(data.validation->num_tokens()) /
           static_cast<double>(*bytes);
}

void keep_tokenizer(const Config& config) {
    if (config.data.tokenizer.empty()) return;
    const std::string copy = config.run.directory + "/tokenizer.model";
    std::error_code none;
    if (std::filesystem::equivalent(config.data.tokenizer, copy, none)) return;
    replace_file(copy, read_text_file(config.data.tokenizer));
}

}  // namespace tessera::train
