#include <fmt/format.h>

#include <memory>
#include <optional>

#include "commands.h"
#include "core/error.h"
#include "data/dataset.h"
#include "data/verify_shard.h"

namespace tessera::apps {
namespace {

constexpr const char* kExamples = R"(
Examples:
  gpt_data verify 'data/corpus_*.h5'
  gpt_data verify 'data/*.h5' --tokenizer t.model
  gpt_data verify others.h5 --tokens-name ids

Prints each fault with its document and offset; exit code 2 if there is any.)";

struct Options {
    std::vector<std::string> patterns;
    data::ShardNames names;
    std::string tokenizer_path;
};

std::string counted(const data::ShardReport& report) {
    return report.num_documents >= 0 ? fmt::format("{} tokens in {} documents", report.num_tokens, report.num_documents)
                                     : fmt::format("{} tokens", report.num_tokens);
}

void verify(const Options& options) {
    std::vector<std::string> paths;
    for (const std::string& pattern : options.patterns) {
        for (std::string& path : data::matching_paths(pattern)) paths.push_back(std::move(path));
    }
    std::optional<data::Tokenizer> tokenizer;
    if (!options.tokenizer_path.empty()) tokenizer = data::Tokenizer::load(options.tokenizer_path);
    std::int64_t faults = 0;
    std::int64_t faulty_shards = 0;
    for (const std::string& path : paths) {
        const data::ShardReport report = data::verify_shard(
                {.path = path,
                 .names = options.names,
                 .tokenizer = tokenizer ? &*tokenizer : nullptr,
                 .on_fault = [&](const data::ShardFault& fault) { fmt::print("{}: {}\n", path, to_string(fault)); }});
        for (const std::string& part : report.not_checked) fmt::print("{}: not checked: {}\n", path, part);
        fmt::print("{}: {}, {}\n", path, counted(report),
                   report.num_faults == 0 ? "no fault found" : fmt::format("{} faults", report.num_faults));
        faults += report.num_faults;
        faulty_shards += report.num_faults > 0 ? 1 : 0;
    }
    std::fflush(stdout);
    if (faults == 0) return;
    core::raise<core::DataError>("{} faults in {} of {} shards; they are listed above, on the standard output", faults,
                                 faulty_shards, paths.size());
}

}  // namespace

void add_verify_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("verify", "Reads token shards whole and lists every fault");
    const auto options = std::make_shared<Options>();
    command->add_option("shards", options->patterns, "Shards, or patterns (* ? [ ]) that stand for them")->required();
    command->add_option("-t,--tokenizer", options->tokenizer_path, "The model the shards must have been made with");
    command->add_option("--tokens-name", options->names.tokens,
                        "Dataset of the tokens (default: tokens, or else input_ids)");
    command->add_option("--offsets-name", options->names.document_offsets, "Dataset of the document offsets")
            ->capture_default_str();
    command->footer(kExamples);
    command->callback([options] { verify(*options); });
}

}  // namespace tessera::apps
