#include "data/dataset.h"

#include <fmt/format.h>
#include <glob.h>
#include <xxhash.h>

#include <algorithm>

#include "core/error.h"
#include "data/sample_order.h"

namespace tessera::data {

/// seq_length + 1 tokens, and the positions in [1, seq_length] at which a document starts.
struct TokenDataset::Sample {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> borders;
};

std::vector<std::string> matching_paths(const std::string& pattern) {
    if (pattern.find_first_of("*?[") == std::string::npos) return {pattern};
    glob_t matches{};
    const int code = glob(pattern.c_str(), 0, nullptr, &matches);
    std::vector<std::string> paths;
    for (std::size_t k = 0; code == 0 && k < matches.gl_pathc; ++k) paths.emplace_back(matches.gl_pathv[k]);
    globfree(&matches);
    if (paths.empty()) core::raise<core::DataError>("no shard matches {}", pattern);
    return paths;
}

TokenDataset::TokenDataset(TokenDatasetArgs args) : args_(std::move(args)) {
    if (args_.seq_length < 1) core::raise<core::DataError>("seq_length must be at least 1, not {}", args_.seq_length);
    if (args_.vocab_size < 1) core::raise<core::DataError>("vocab_size must be at least 1, not {}", args_.vocab_size);
    if (args_.sources.empty()) core::raise<core::DataError>("no data sources were given");
    if (args_.order == SampleOrder::shuffled) {
        std::vector<double> weights;
        std::vector<std::string> names;
        for (const DataSource& source : args_.sources) {
            weights.push_back(source.weight);
            names.push_back(!source.name.empty() || source.paths.empty() ? source.name : source.paths.front());
        }
        blend_ = std::make_unique<Blend>(weights, names);
    }
    open_sources();
    if (blend_ != nullptr) begin_blend();
}

namespace {

/// Of the tokens of shards in their order, wherever the shards lie.
std::string identity_of(const std::vector<ShardReader>& shards) {
    std::vector<std::uint64_t> content;
    for (const ShardReader& shard : shards) {
        content.push_back(static_cast<std::uint64_t>(shard.num_tokens()));
        content.push_back(shard.content_hash());
    }
    return fmt::format("{:016x}", XXH64(content.data(), content.size() * sizeof(std::uint64_t), 0));
}

}  // namespace

void TokenDataset::begin_blend() {
    state_ = {.seed = args_.seed, .seq_length = args_.seq_length};
    for (std::size_t s = 0; s < sources_.size(); ++s) {
        state_.sources.push_back({.identity = identity_of(sources_[s].shards),
                                  .name = sources_[s].name,
                                  .stream = static_cast<std::uint32_t>(s),
                                  .num_samples = sources_[s].num_samples,
                                  .weight = args_.sources[s].weight});
    }
}

std::vector<std::string> TokenDataset::resume(const BlendState& saved, std::int64_t position) {
    TESSERA_INVARIANT(blend_ != nullptr);
    BlendState present = state_;
    present.sources.resize(sources_.size());
    ContinuedBlend continued = continued_blend(saved, present, position);
    state_ = std::move(continued.state);
    return std::move(continued.changes);
}

void TokenDataset::open_sources() {
    std::vector<std::string> all_paths;
    std::vector<std::size_t> shards_of_source;
    for (const DataSource& source : args_.sources) {
        const std::size_t before = all_paths.size();
        for (const std::string& pattern : source.paths) {
            for (std::string& path : matching_paths(pattern)) all_paths.push_back(std::move(path));
        }
        shards_of_source.push_back(all_paths.size() - before);
        if (all_paths.size() == before) core::raise<core::DataError>("data source '{}' names no shards", source.name);
    }
    std::vector<ShardReader> shards = open_shards(all_paths, args_.names);

    check_tokenizers(shards);
    text_bytes_ = 0;
    std::size_t next = 0;
    for (std::size_t s = 0; s < args_.sources.size(); ++s) {
        Source source;
        source.name = args_.sources[s].name.empty() ? args_.sources[s].paths.front() : args_.sources[s].name;
        for (std::size_t k = 0; k < shards_of_source[s]; ++k, ++next) {
            check_shard(shards[next]);
            source.shard_start.push_back(source.num_tokens);
            source.num_tokens += shards[next].num_tokens();
            const auto bytes = shards[next].text_bytes();
            text_bytes_ = text_bytes_ && bytes ? std::optional(*text_bytes_ + *bytes) : std::nullopt;
            source.shards.push_back(std::move(shards[next]));
        }
        source.num_samples = (source.num_tokens - 1) / args_.seq_length;
        if (source.num_samples < 1) {
            core::raise<core::DataError>(
                    "data source {} holds {} tokens, but one sample needs seq_length + 1 = {}; give more text or a "
                    "shorter seq_length",
                    source.name, source.num_tokens, args_.seq_length + 1);
        }
        num_samples_ += source.num_samples;
        num_tokens_ += source.num_tokens;
        sources_.push_back(std::move(source));
    }
}

void TokenDataset::check_shard(const ShardReader& shard) const {
    const ShardIdentity& identity = shard.identity();
    if (identity.vocab_size && *identity.vocab_size > args_.vocab_size) {
        core::raise<core::DataError>(
                "shard {} was made with a vocabulary of {}, but the model's vocabulary is {}; raise model.vocab_size "
                "or tokenize again",
                shard.path(), *identity.vocab_size, args_.vocab_size);
    }
    if (args_.document_mask == DocumentMask::on && !shard.has_document_offsets() && !identity.eod_id && !args_.eod_id) {
        core::raise<core::DataError>(
                "the document mask needs to know where documents end, but shard {} has neither document offsets nor an "
                "eod_id attribute, and no end-of-document id was given",
                shard.path());
    }
}

void TokenDataset::check_tokenizers(const std::vector<ShardReader>& shards) const {
    std::string expected = args_.tokenizer_sha256;
    std::string whose = "the run's tokenizer";
    for (const ShardReader& shard : shards) {
        const std::string& found = shard.identity().tokenizer_sha256;
        if (found.empty()) continue;
        if (expected.empty()) {
            expected = found;
            whose = "the tokenizer of shard " + shard.path();
        }
        if (found == expected) continue;
        core::raise<core::DataError>(
                "shard {} was made with another tokenizer (SHA-256 {:.12}...) than {} ({:.12}...); tokenize again or "
                "name the right tokenizer",
                shard.path(), found, whose, expected);
    }
}

SamplePlace TokenDataset::place_of(std::int64_t position) const {
    TESSERA_INVARIANT(position >= 0);
    if (args_.order == SampleOrder::ordered) {
        if (position >= num_samples_) {
            core::raise<core::DataError>("sample {} was asked for, but the data holds {} samples of {} tokens",
                                         position, num_samples_, args_.seq_length);
        }
        std::int64_t source = 0;
        while (position >= sources_[static_cast<std::size_t>(source)].num_samples) {
            position -= sources_[static_cast<std::size_t>(source++)].num_samples;
        }
        return {source, 0, position};
    }
    const BlendPlace place = blend_->at(position - state_.first_position);
    const SourceState& source = state_.sources[static_cast<std::size_t>(place.source)];
    const std::int64_t size = source.num_samples;
    const std::int64_t index = source.given + place.index;
    const std::int64_t epoch = index / size;
    const KeyedPermutation order(
            {.size = size, .seed = args_.seed, .stream = source.stream, .round = static_cast<std::uint32_t>(epoch)});
    return {place.source, epoch, order(index % size)};
}

void TokenDataset::find_borders(const ShardReader& shard, std::int64_t first, std::int64_t last, std::int64_t at,
                                Sample& out) const {
    // Token `first` of the shard is out.tokens[at]; position 0 of a sample is no border inside it.
    const auto add = [&](std::int64_t border) {
        if (border > 0 && border <= args_.seq_length) out.borders.push_back(static_cast<std::int32_t>(border));
    };
    if (shard.has_document_offsets()) {
        for (const std::int64_t start : shard.document_starts(first, last)) {
            // Empty documents start where the next one does.
            const std::int64_t border = start - first + at;
            if (out.borders.empty() || out.borders.back() != border) add(border);
        }
        return;
    }
    const std::optional<std::int32_t> eod = shard.identity().eod_id ? shard.identity().eod_id : args_.eod_id;
    for (std::int64_t k = std::max<std::int64_t>(at, 1); k < at + last - first; ++k) {
        if (out.tokens[static_cast<std::size_t>(k - 1)] == *eod) add(k);
    }
}

void TokenDataset::read_sample(const Source& source, std::int64_t sample, Sample& out) const {
    const std::int64_t length = args_.seq_length + 1;
    out.tokens.resize(static_cast<std::size_t>(length));
    out.borders.clear();
    const std::int64_t begin = sample * args_.seq_length;
    auto shard =
            static_cast<std::size_t>(std::upper_bound(source.shard_start.begin(), source.shard_start.end(), begin) -
                                     source.shard_start.begin() - 1);
    for (std::int64_t done = 0; done < length; ++shard) {
        const ShardReader& reader = source.shards[shard];
        const std::int64_t first = begin + done - source.shard_start[shard];
        const std::int64_t last = std::min(first + length - done, reader.num_tokens());
        reader.read(
                first,
                std::span(out.tokens).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(last - first)),
                args_.vocab_size);
        if (args_.document_mask == DocumentMask::on) find_borders(reader, first, last, done, out);
        done += last - first;
    }
}

void TokenDataset::read_samples(std::int64_t position, std::int64_t count, Batch& batch) const {
    const std::int64_t length = args_.seq_length;
    batch.first_sample = position;
    batch.num_samples = count;
    batch.seq_length = length;
    batch.tokens.resize(static_cast<std::size_t>(count * length));
    batch.targets.resize(static_cast<std::size_t>(count * length));
    batch.sample_index.resize(static_cast<std::size_t>(count));
    batch.document_borders.assign(static_cast<std::size_t>(count), {});
    batch.loss_tokens = count * length;
    Sample sample;
    for (std::int64_t k = 0; k < count; ++k) {
        const SamplePlace place = place_of(position + k);
        read_sample(sources_[static_cast<std::size_t>(place.source)], place.sample, sample);
        std::copy_n(sample.tokens.begin(), length, batch.tokens.begin() + k * length);
        std::copy_n(sample.tokens.begin() + 1, length, batch.targets.begin() + k * length);
        batch.sample_index[static_cast<std::size_t>(k)] = position + k;
        for (const std::int32_t border : sample.borders) {
            batch.targets[static_cast<std::size_t>(k * length + border - 1)] = -1;
            --batch.loss_tokens;
            if (border < length) batch.document_borders[static_cast<std::size_t>(k)].push_back(border);
        }
    }
}

double TokenDataset::epochs(std::int64_t source, std::int64_t samples) const {
    const Source& which = sources_[static_cast<std::size_t>(source)];
    std::int64_t read = std::min(samples, which.num_samples);
    if (blend_ != nullptr) {
        const std::int64_t in_blend = std::max<std::int64_t>(samples - state_.first_position, 0);
        read = state_.sources[static_cast<std::size_t>(source)].given + blend_->count(source, in_blend);
    }
    return static_cast<double>(read) / static_cast<double>(which.num_samples);
}

double TokenDataset::most_epochs(std::int64_t samples) const {
    double most = 0;
    for (std::size_t s = 0; s < sources_.size(); ++s)
        most = std::max(most, epochs(static_cast<std::int64_t>(s), samples));
    return most;
}

std::string TokenDataset::describe(std::int64_t samples) const {
    std::string text = fmt::format("{} samples of {} tokens needed, {} in one pass over the data", samples,
                                   args_.seq_length, num_samples_);
    for (std::size_t s = 0; s < sources_.size(); ++s) {
        const Source& source = sources_[s];
        const double share = blend_ != nullptr
                                     ? static_cast<double>(blend_->quotas()[s]) / static_cast<double>(kBlendSlots)
                                     : static_cast<double>(source.num_samples) / static_cast<double>(num_samples_);
        text += fmt::format("\n  {}: {} shards, {} tokens, {} samples, share {:.3f} %, {:.2f} epochs", source.name,
                            source.shards.size(), source.num_tokens, source.num_samples, 100 * share,
                            epochs(static_cast<std::int64_t>(s), samples));
    }
    return text;
}

}  // namespace tessera::data
