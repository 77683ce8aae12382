#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "commands.h"
#include "common/whole_number.h"
#include "core/error.h"
#include "data/dataset.h"
#include "data/shard.h"
#include "data/tokenizer.h"

namespace tessera::apps {
namespace {

constexpr const char* kExamples = R"(
Examples:
  gpt_data inspect data/corpus_train_*.h5
  gpt_data inspect data/corpus_train_00000.h5 --tokenizer t.model --documents 3
  gpt_data inspect --check data/*.h5
  gpt_data inspect other.h5 --tokens-name ids)";

constexpr std::int64_t kTokensShown = 256;

struct Options {
    std::vector<std::string> files;
    data::ShardNames names;
    std::string tokenizer_path;
    std::int64_t documents = 2;
    bool check = false;
};

std::string or_unknown(const std::string& text) {
    return text.empty() ? "not stored" : text;
}

template <typename T>
std::string or_unknown(const std::optional<T>& value) {
    return value ? fmt::format("{}", *value) : "not stored";
}

void print_statistics(const data::ShardReader& shard) {
    fmt::print("{}\n", shard.path());
    fmt::print("  tokens             {} ({}, {})\n", shard.num_tokens(), shard.storage_name(),
               shard.is_mapped() ? "mapped" : "read through hyperslabs");
    if (shard.num_documents() > 0) {
        std::int64_t longest = 0;
        for (std::int64_t d = 0; d < shard.num_documents(); ++d) {
            longest = std::max(longest, shard.document_offset(d + 1) - shard.document_offset(d));
        }
        fmt::print("  documents          {} (mean {:.1f} tokens, longest {})\n", shard.num_documents(),
                   static_cast<double>(shard.num_tokens()) / static_cast<double>(shard.num_documents()), longest);
    } else {
        fmt::print("  documents          not stored\n");
    }
    if (shard.text_bytes()) {
        fmt::print("  text bytes         {} ({:.3f} per token)\n", *shard.text_bytes(),
                   static_cast<double>(*shard.text_bytes()) / static_cast<double>(shard.num_tokens()));
    }
    fmt::print("  vocabulary         {}\n", or_unknown(shard.identity().vocab_size));
    fmt::print("  end of document    {}\n", or_unknown(shard.identity().eod_id));
    fmt::print("  tokenizer sha256   {}\n", or_unknown(shard.identity().tokenizer_sha256));
}

void print_documents(const data::ShardReader& shard, const data::Tokenizer& tokenizer, std::int64_t count) {
    const bool known = shard.num_documents() > 0;
    const std::int64_t shown = known ? std::min(count, shard.num_documents()) : std::min<std::int64_t>(count, 1);
    for (std::int64_t d = 0; d < shown; ++d) {
        const std::int64_t first = known ? shard.document_offset(d) : 0;
        const std::int64_t last = known ? shard.document_offset(d + 1) : shard.num_tokens();
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(last - first, kTokensShown)));
        shard.read(first, tokens, tokenizer.vocab_size());
        fmt::print("  --- document {} ({} tokens) ---\n{}{}\n", d, last - first, tokenizer.decode(tokens),
                   last - first > kTokensShown ? " [...]" : "");
    }
}

void inspect(const Options& options) {
    std::vector<std::string> paths;
    for (const std::string& pattern : options.files) {
        for (std::string& path : data::matching_paths(pattern)) paths.push_back(std::move(path));
    }
    std::optional<data::Tokenizer> tokenizer;
    if (!options.tokenizer_path.empty()) tokenizer = data::Tokenizer::load(options.tokenizer_path);
    for (const data::ShardReader& shard : data::open_shards(paths, options.names)) {
        print_statistics(shard);
        if (options.check) {
            shard.check();
            fmt::print("  checked            every token and document read, no fault found\n");
        }
        if (!tokenizer) continue;
        const std::string& sha256 = shard.identity().tokenizer_sha256;
        if (!sha256.empty() && sha256 != tokenizer->sha256()) {
            core::raise<core::DataError>("shard {} was made with the tokenizer {:.12}..., but {} is {:.12}...",
                                         shard.path(), sha256, options.tokenizer_path, tokenizer->sha256());
        }
        print_documents(shard, *tokenizer, options.documents);
    }
}

}  // namespace

void add_inspect_command(CLI::App& app) {
    CLI::App* command =
            app.add_subcommand("inspect", "Prints statistics of token shards, and their first documents as text");
    const auto options = std::make_shared<Options>();
    command->add_option("files", options->files, "Shards")->required();
    command->add_option("-t,--tokenizer", options->tokenizer_path, "Show the first documents decoded by this model");
    command->add_option("--documents", options->documents, "How many documents to show")
            ->capture_default_str()
            ->check(whole_number<std::int64_t>(0));
    command->add_option("--tokens-name", options->names.tokens,
                        "Dataset of the tokens (default: tokens, or else input_ids)");
    command->add_option("--offsets-name", options->names.document_offsets, "Dataset of the document offsets")
            ->capture_default_str();
    command->add_flag("--check", options->check, "Read everything and check ids, documents and checksum");
    command->footer(kExamples);
    command->callback([options] { inspect(*options); });
}

}  // namespace tessera::apps
