// Tokenizing: documents through Tokenizer beside SentencePiece's own Encode, and the corpus by number of threads.
//
//   TESSERA_BENCH_TEXT=corpus.txt build/release/bench/tokenize_bench --benchmark_repetitions=5
//
// Without TESSERA_BENCH_TEXT the text is generated. What is compared is measured in turns inside one run, and a ratio
// is the median over the turns: a busy machine slows both alike.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "core/clock.h"
#include "core/philox.h"
#include "data/text_source.h"
#include "data/tokenize_corpus.h"
#include "data/tokenizer.h"
#include "data/tokenizer_training.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kCorpusBytes = std::int64_t{8} << 20;
constexpr std::int64_t kEncodedBytes = std::int64_t{1} << 20;
constexpr std::int64_t kVocabSize = 8192;

/// Sentences of words whose frequencies fall as 1/rank, in paragraphs of uneven length.
std::string generated_text() {
    std::string text;
    for (std::uint32_t k = 0; static_cast<std::int64_t>(text.size()) < kCorpusBytes; ++k) {
        const auto words = core::philox4x32_10({k, 0, 0, 0}, {1, 1});
        const auto rank = static_cast<std::uint32_t>(8000.0 / (1 + words[0] % 8000));
        const auto letters = core::philox4x32_10({rank, 1, 0, 0}, {1, 1});
        for (std::uint32_t c = 0; c < 2 + letters[0] % 8; ++c)
            text += static_cast<char>('a' + (letters[1] >> (3 * c)) % 26);
        text += words[1] % 80 == 0 ? ".\n\n" : words[1] % 12 == 0 ? ".\n" : " ";
    }
    return text;
}

/// A folder with a corpus and a tokenizer learned from it, made once.
class Corpus {
public:
    static const Corpus& instance() {
        static const Corpus corpus;
        return corpus;
    }
    ~Corpus() {
        std::error_code none;
        std::filesystem::remove_all(folder_, none);
    }
    Corpus(const Corpus&) = delete;
    Corpus& operator=(const Corpus&) = delete;

    std::string path(const std::string& name) const { return folder_ + "/" + name; }
    const std::vector<std::string>& documents() const { return documents_; }
    std::int64_t bytes() const { return bytes_; }

private:
    Corpus() {
        std::string name = (std::filesystem::temp_directory_path() / "tessera_bench_XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder " + name);
        folder_ = name;
        std::ofstream out(path("corpus.txt"), std::ios::binary);
        if (const char* text = std::getenv("TESSERA_BENCH_TEXT"); text != nullptr) {
            data::TextSource source({.paths = {text}});
            std::string document;
            while (static_cast<std::int64_t>(out.tellp()) < kCorpusBytes && source.next(document))
                out << document << "\n\n";
        } else {
            out << generated_text();
        }
        bytes_ = out.tellp();
        out.close();
        data::TrainTokenizerArgs args;
        args.source.paths = {path("corpus.txt")};
        args.output_path = path("t.model");
        args.vocab_size = kVocabSize;
        args.limit = data::VocabularyLimit::soft;
        data::train_tokenizer(args);
        data::TextSource source({.paths = {path("corpus.txt")}});
        std::string document;
        while (source.counts().text_bytes < kEncodedBytes && source.next(document)) documents_.push_back(document);
    }

    std::string folder_;
    std::vector<std::string> documents_;
    std::int64_t bytes_ = 0;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// Of this thread: what other processes take from it does not count.
template <typename Action>
double processor_seconds_of(Action&& action) {
    const auto now = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    action();
    return now() - begin;
}

template <typename Action>
double seconds_of(Action&& action) {
    const double begin = core::now_s();
    action();
    return core::now_s() - begin;
}

/// ratio: processor time of Tokenizer::encode per that of SentencePieceProcessor::Encode over the same documents, one
/// thread. range(0) 0: the documents as they are; 1: all of them as one text.
void encode(benchmark::State& state) {
    const Corpus& corpus = Corpus::instance();
    const data::Tokenizer tokenizer = data::Tokenizer::load(corpus.path("t.model"));
    sentencepiece::SentencePieceProcessor processor;
    if (!processor.Load(corpus.path("t.model")).ok()) throw std::runtime_error("cannot load the tokenizer");
    std::vector<std::string> texts = corpus.documents();
    if (state.range(0) == 1) {
        std::string whole;
        for (const std::string& text : texts) whole += text + "\n\n";
        texts = {whole};
    }
    std::int64_t bytes = 0;
    for (const std::string& text : texts) bytes += static_cast<std::int64_t>(text.size());
    const auto ours = [&] {
        for (const std::string& text : texts) benchmark::DoNotOptimize(tokenizer.encode(text));
    };
    const auto theirs = [&] {
        std::vector<int> ids;
        for (const std::string& text : texts) {
            benchmark::DoNotOptimize(processor.Encode(text, &ids).ok());
            benchmark::DoNotOptimize(ids.data());
        }
    };
    std::vector<double> ratios;
    double ours_s = 0;
    double theirs_s = 0;
    for (auto _ : state) {
        // Whatever drifts meanwhile touches both alike.
        const double first = processor_seconds_of(ours);
        const double of_theirs = processor_seconds_of(theirs) + processor_seconds_of(theirs);
        const double of_ours = first + processor_seconds_of(ours);
        ratios.push_back(of_ours / of_theirs);
        ours_s += of_ours;
        theirs_s += of_theirs;
        state.SetIterationTime(of_ours);
    }
    const double megabytes = 2 * static_cast<double>(bytes) * static_cast<double>(ratios.size()) * 1e-6;
    state.counters["ratio"] = median(ratios);
    state.counters["MB/s"] = megabytes / ours_s;
    state.counters["sentencepiece_MB/s"] = megabytes / theirs_s;
}
BENCHMARK(encode)->ArgName("as_one")->Arg(0)->Arg(1)->UseManualTime()->Unit(benchmark::kMillisecond);

/// speedup: time of tokenize_corpus with one thread per its time with range(0) threads, shards written and all.
void tokenize(benchmark::State& state) {
    const Corpus& corpus = Corpus::instance();
    data::TokenizeArgs args;
    args.source.paths = {corpus.path("corpus.txt")};
    args.tokenizer_path = corpus.path("t.model");
    args.output_prefix = corpus.path("shards");
    args.existing = data::ExistingShards::replace;
    const auto run = [&](int threads) {
        args.num_threads = threads;
        return seconds_of([&] { data::tokenize_corpus(args); });
    };
    std::vector<double> speedups;
    double total_s = 0;
    for (auto _ : state) {
        const double one = run(1);
        const double many = run(static_cast<int>(state.range(0)));
        speedups.push_back(one / many);
        total_s += many;
        state.SetIterationTime(many);
    }
    state.counters["speedup"] = median(speedups);
    state.counters["MB/s"] =
            static_cast<double>(corpus.bytes()) * static_cast<double>(speedups.size()) * 1e-6 / total_s;
}
BENCHMARK(tokenize)->ArgName("threads")->Arg(1)->Arg(2)->Arg(4)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera::bench

BENCHMARK_MAIN();
