#include "data/tokenizer_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "data/atomic_file.h"
#include "data/tokenizer.h"

namespace tessera::data {
namespace {

constexpr std::size_t kLongestPieceBytes = 4096;
constexpr std::size_t kLongestIndent = 32;
constexpr std::size_t kMostIndentPieces = 16;
/// An indentation becomes a piece if it occurs at least once in so many bytes.
constexpr std::int64_t kBytesPerIndent = 4096;
/// U+2581 (SentencePiece's blank) and U+2585 (its mark of unknown text) would mislead the trainer; U+0000 stops it.
constexpr std::array<std::string_view, 3> kWithheld = {"\xE2\x96\x81", "\xE2\x96\x85", std::string_view("\0", 1)};

/// Bytes of the first piece of `text`: at most kLongestPieceBytes, cut after a line break, before a blank, or anywhere
/// between two characters.
std::size_t piece_bytes(std::string_view text) {
    if (text.size() <= kLongestPieceBytes) return text.size();
    const std::size_t line_end = text.rfind('\n', kLongestPieceBytes - 1);
    if (line_end != std::string_view::npos && line_end > 0) return line_end + 1;
    const std::size_t blank = text.rfind(' ', kLongestPieceBytes);
    if (blank != std::string_view::npos && blank > 0) return blank;
    std::size_t at = kLongestPieceBytes;
    while (at > 1 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
}

/// The text with a line break in place of each withheld character.
std::string without_withheld(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        std::size_t at = text.size();
        std::size_t length = 0;
        for (const std::string_view character : kWithheld) {
            const std::size_t found = text.substr(0, at).find(character);
            if (found == std::string_view::npos) continue;
            at = found;
            length = character.size();
        }
        out += text.substr(0, at);
        if (length > 0) out += '\n';
        text.remove_prefix(at + length);
    }
    return out;
}

/// A sample of the corpus in pieces, taken so that at every point of the corpus the share kept is the same.
struct Sample {
    std::vector<std::string> pieces;
    std::int64_t bytes = 0;
    std::int64_t corpus_bytes = 0;
};

/// Of packed files the bytes they unpack to count: packing a corpus changes no tokenizer.
Sample draw_sample(TextSource& source, const std::vector<std::string>& paths, std::int64_t sample_bytes) {
    Sample sample;
    std::int64_t total_bytes = 0;
    for (const std::string& path : paths) total_bytes += unpacked_bytes(path);
    const double keep =
            total_bytes <= sample_bytes ? 1.0 : static_cast<double>(sample_bytes) / static_cast<double>(total_bytes);
    std::string document;
    while (source.next(document)) {
        std::string_view rest = document;
        while (!rest.empty()) {
            const std::size_t count = piece_bytes(rest);
            sample.corpus_bytes += static_cast<std::int64_t>(count);
            if (static_cast<double>(sample.bytes) <= keep * static_cast<double>(sample.corpus_bytes)) {
                sample.pieces.push_back(without_withheld(rest.substr(0, count)));
                sample.bytes += static_cast<std::int64_t>(count);
            }
            rest.remove_prefix(count);
        }
    }
    return sample;
}

/// Line breaks as pieces: "\n", and "\n" with one blank less than each frequent indentation.
std::vector<std::string> line_break_pieces(const Sample& sample) {
    std::array<std::int64_t, kLongestIndent + 1> occurrences{};
    for (const std::string& text : sample.pieces) {
        for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
            std::size_t blanks = 0;
            while (at + 1 + blanks < text.size() && text[at + 1 + blanks] == ' ') ++blanks;
            if (blanks <= kLongestIndent) ++occurrences[blanks];
        }
    }
    std::vector<std::size_t> frequent;
    for (std::size_t blanks = 2; blanks <= kLongestIndent; ++blanks) {
        if (occurrences[blanks] > 0 && occurrences[blanks] * kBytesPerIndent >= sample.bytes)
            frequent.push_back(blanks);
    }
    std::stable_sort(frequent.begin(), frequent.end(),
                     [&](std::size_t a, std::size_t b) { return occurrences[a] > occurrences[b]; });
    frequent.resize(std::min(frequent.size(), kMostIndentPieces));

    std::vector<std::string> pieces = {"\n"};
    for (const std::size_t blanks : frequent) {
        std::string piece = "\n";
        for (std::size_t k = 1; k < blanks; ++k) piece += "\xE2\x96\x81";
        pieces.push_back(std::move(piece));
    }
    return pieces;
}

class SampleIterator : public sentencepiece::SentenceIterator {
public:
    explicit SampleIterator(const std::vector<std::string>& pieces) : pieces_(pieces) {}
    bool done() const override { return at_ == pieces_.size(); }
    void Next() override { ++at_; }
    const std::string& value() const override { return pieces_[at_]; }
    sentencepiece::util::Status status() const override { return {}; }

private:
    const std::vector<std::string>& pieces_;
    std::size_t at_ = 0;
};

std::unordered_map<std::string, std::string> trainer_settings(const TrainTokenizerArgs& args, const Sample& sample) {
    return {{"model_type", args.model == TokenizerModel::bpe ? "bpe" : "unigram"},
            {"vocab_size", std::to_string(args.vocab_size)},
            {"hard_vocab_limit", args.limit == VocabularyLimit::hard ? "true" : "false"},
            {"byte_fallback", "true"},
            {"normalization_rule_name", "identity"},
            {"add_dummy_prefix", "false"},
            {"remove_extra_whitespaces", "false"},
            {"allow_whitespace_only_pieces", "true"},
            {"split_digits", "false"},
            {"max_sentence_length", std::to_string(2 * kLongestPieceBytes)},
            {"num_threads", std::to_string(args.num_threads)},
            {"eos_id", "0"},
            {"unk_id", "1"},
            {"bos_id", "-1"},
            {"pad_id", "-1"},
            {"eos_piece", args.eod_piece},
            {"user_defined_symbols", fmt::format("{}", fmt::join(line_break_pieces(sample), ","))},
            {"minloglevel", "3"}};
}

/// The number after `mark` in `text`, or -1.
std::int64_t number_after(const std::string& text, const std::string& mark) {
    const std::size_t at = text.rfind(mark);
    if (at == std::string::npos) return -1;
    std::int64_t value = -1;
    const char* begin = text.data() + at + mark.size();
    std::from_chars(begin, text.data() + text.size(), value);
    return value;
}

[[noreturn]] void refuse(const TrainTokenizerArgs& args, const Sample& sample, const std::string& message) {
    const std::int64_t largest = number_after(message, "<= ");
    if (message.find("too high") != std::string::npos && largest > 0) {
        core::raise<core::DataError>(
                "a vocabulary of {} is too large for this corpus: {} bytes of text give at most {} pieces; ask for at "
                "most {} or "
                "use the soft limit (--soft-limit)",
                args.vocab_size, sample.bytes, largest, largest);
    }
    const std::int64_t smallest = number_after(message, " vs ");
    if (smallest > 0) {
        core::raise<core::DataError>(
                "a vocabulary of {} is too small: the byte pieces, line breaks and characters of this corpus "
                "need more than {}; ask for more pieces",
                args.vocab_size, smallest);
    }
    core::raise<core::DataError>("training a tokenizer of {} pieces on {} bytes failed: {}", args.vocab_size,
                                 sample.bytes, message);
}

}  // namespace

TrainTokenizerResult train_tokenizer(const TrainTokenizerArgs& args) {
    if (args.vocab_size < 1)
        core::raise<core::UsageError>("the vocabulary size must be positive, not {}", args.vocab_size);
    if (args.sample_bytes < 1)
        core::raise<core::UsageError>("the sample must be at least 1 byte, not {}", args.sample_bytes);
    AtomicFile output(args.output_path);
    TextSource source(args.source);
    const Sample sample = draw_sample(source, args.source.paths, args.sample_bytes);
    if (sample.bytes == 0) {
        core::raise<core::DataError>(
                "no text to train a tokenizer on: {} files with {} bytes hold no document that is not blank",
                args.source.paths.size(), source.total_bytes());
    }
    if (args.on_sample_drawn) args.on_sample_drawn(sample.bytes, sample.corpus_bytes);

    SampleIterator iterator(sample.pieces);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_settings(args, sample), &iterator, &model);
    if (!status.ok()) refuse(args, sample, status.ToString());
    output.write(model.data(), model.size());
    output.commit();
    return {.vocab_size = Tokenizer::load(args.output_path).vocab_size(),
            .sampled_bytes = sample.bytes,
            .counts = source.counts()};
}

}  // namespace tessera::data
