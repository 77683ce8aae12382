#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>

#include "commands.h"
#include "common/whole_number.h"
#include "core/clock.h"
#include "core/signal_watcher.h"
#include "data/tokenize_corpus.h"
#include "progress_bar.h"
#include "text_options.h"

namespace tessera::apps {
namespace {

constexpr const char* kExamples = R"(
Examples:
  gpt_data tokenize corpus.txt -t t.model -o data/corpus --validation 0.01
  gpt_data tokenize *.jsonl.gz --text-key content -t t.model -o data/web)";

struct Options {
    TextOptions text;
    bool overwrite = false;
    data::TokenizeArgs tokenize;
};

void print_part(const char* name, const data::CorpusPart& part) {
    if (part.documents == 0) return;
    fmt::print("{:<20} {} documents, {} tokens, {} text bytes, {} shards ({}{})\n", name, part.documents, part.tokens,
               part.text_bytes, part.shards.size(), part.shards.front(), part.shards.size() > 1 ? " ..." : "");
}

void tokenize(const Options& options) {
    const double start = core::now_s();
    data::TokenizeArgs args = options.tokenize;
    args.source = options.text.resolved();
    args.existing = options.overwrite ? data::ExistingShards::replace : data::ExistingShards::refuse;
    std::atomic<bool> stop = false;
    args.stop = &stop;
    const core::SignalWatcher watcher({SIGTERM, SIGINT}, [&](int) { stop.store(true); });
    ProgressBar bar;
    args.on_progress = [&](const data::TokenizeProgress& progress) {
        const double fraction = static_cast<double>(progress.bytes_read) /
                                static_cast<double>(std::max<std::int64_t>(1, progress.total_bytes));
        bar.update(fraction, fmt::format("{} documents, {:.1f} M tokens, {:.1f} MB/s", progress.documents,
                                         static_cast<double>(progress.tokens) * 1e-6,
                                         static_cast<double>(progress.text_bytes) * 1e-6 / (core::now_s() - start)));
    };
    const data::TokenizeSummary summary = data::tokenize_corpus(args);
    bar.finish();
    const double seconds = core::now_s() - start;
    fmt::print(stderr, "tokenized in {:.1f} s: {:.1f} MB/s with {} thread{}\n", seconds,
               static_cast<double>(summary.counts.text_bytes) * 1e-6 / seconds, args.num_threads,
               args.num_threads > 1 ? "s" : "");
    print_text_counts(summary.counts);
    const std::int64_t tokens = summary.train.tokens + summary.validation.tokens;
    fmt::print("tokens               {} (end-of-document tokens included)\n", tokens);
    fmt::print("bytes per token      {:.3f}\n",
               static_cast<double>(summary.counts.text_bytes) / static_cast<double>(tokens));
    print_part("training", summary.train);
    print_part("validation", summary.validation);
    if (!args.validation_text_path.empty()) fmt::print("validation text      {}\n", args.validation_text_path);
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("tokenize", "Turns text into HDF5 token shards");
    const auto options = std::make_shared<Options>();
    data::TokenizeArgs& args = options->tokenize;
    args.num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    options->text.add_to(*command);
    command->add_option("-t,--tokenizer", args.tokenizer_path, "the SentencePiece model")->required();
    command->add_option("-o,--output", args.output_prefix, "prefix of the shards")->required();
    command->add_option("--validation", args.validation_fraction, "share of the documents to hold out")
            ->capture_default_str();
    command->add_option("--validation-text", args.validation_text_path, "write the held-out documents as text, too");
    command->add_option("--seed", args.seed, "of the choice of held-out documents")
            ->capture_default_str()
            ->check(whole_number<std::uint64_t>(0));
    command->add_option("--max-tokens-per-shard", args.max_tokens_per_shard, "most tokens of a shard")
            ->capture_default_str()
            ->check(whole_number<std::int64_t>(1));
    command->add_option("--threads", args.num_threads, "the shards do not depend on it")
            ->check(whole_number<int>(1))
            ->capture_default_str();
    command->add_flag("--overwrite", options->overwrite, "replace shards of the same prefix");
    command->footer(kExamples);
    command->callback([options] { tokenize(*options); });
}

}  // namespace tessera::apps
