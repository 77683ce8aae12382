#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <thread>

#include "commands.h"
#include "common/whole_number.h"
#include "core/clock.h"
#include "data/tokenizer.h"
#include "data/tokenizer_training.h"
#include "text_options.h"

namespace tessera::apps {
namespace {

constexpr const char* kExamples = R"(
Examples:
  gpt_data tokenizer corpus.txt --output runs/tokenizer.model --vocab-size 4096
  gpt_data tokenizer *.jsonl --text-key content --model unigram --output t.model
  gpt_data tokenizer small.txt --vocab-size 32000 --soft-limit --output t.model)";

struct Options {
    TextOptions text;
    std::string model = "bpe";
    bool soft_limit = false;
    data::TrainTokenizerArgs train;
};

void train(const Options& options) {
    const double start = core::now_s();
    data::TrainTokenizerArgs args = options.train;
    args.source = options.text.resolved();
    args.model = options.model == "bpe" ? data::TokenizerModel::bpe : data::TokenizerModel::unigram;
    args.limit = options.soft_limit ? data::VocabularyLimit::soft : data::VocabularyLimit::hard;
    args.on_sample_drawn = [&](std::int64_t sampled_bytes, std::int64_t corpus_bytes) {
        fmt::print(stderr, "training a {} tokenizer of {} pieces on {:.1f} of {:.1f} MB of text ...\n", options.model,
                   args.vocab_size, static_cast<double>(sampled_bytes) * 1e-6,
                   static_cast<double>(corpus_bytes) * 1e-6);
    };
    const data::TrainTokenizerResult result = data::train_tokenizer(args);
    fmt::print(stderr, "trained in {:.1f} s\n", core::now_s() - start);
    print_text_counts(result.counts);
    const data::Tokenizer tokenizer = data::Tokenizer::load(args.output_path);
    fmt::print("trained on           {} bytes ({:.1f} % of the text)\n", result.sampled_bytes,
               100.0 * static_cast<double>(result.sampled_bytes) / static_cast<double>(result.counts.text_bytes));
    fmt::print("vocabulary           {}\n", result.vocab_size);
    fmt::print("end of document      id {} {}\n", tokenizer.eod_id(), tokenizer.piece(tokenizer.eod_id()));
    fmt::print("sha256               {}\n", tokenizer.sha256());
    fmt::print("written              {}\n", args.output_path);
}

}  // namespace

void add_tokenizer_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("tokenizer", "Trains a SentencePiece tokenizer on text");
    const auto options = std::make_shared<Options>();
    options->train.num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    options->text.add_to(*command);
    command->add_option("-o,--output", options->train.output_path, "the model file to write")->required();
    command->add_option("--vocab-size", options->train.vocab_size, "number of pieces")
            ->capture_default_str()
            ->check(whole_number<std::int64_t>(1));
    command->add_option("--model", options->model, "bpe or unigram")
            ->check(CLI::IsMember({"bpe", "unigram"}))
            ->capture_default_str();
    command->add_flag("--soft-limit", options->soft_limit, "fewer pieces if the text is too short");
    command->add_option("--sample-bytes", options->train.sample_bytes, "text to learn from, spread evenly")
            ->capture_default_str()
            ->check(whole_number<std::int64_t>(1));
    command->add_option("--threads", options->train.num_threads, "unigram uses them best")
            ->check(whole_number<int>(1))
            ->capture_default_str();
    command->footer(kExamples);
    command->callback([options] { train(*options); });
}

}  // namespace tessera::apps
