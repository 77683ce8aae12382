#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "data/text_source.h"

namespace tessera::data {

enum class TokenizerModel { bpe, unigram };

/// What to do when the corpus cannot fill the vocabulary: refuse and name the largest size, or make a smaller model.
enum class VocabularyLimit { hard, soft };

struct TrainTokenizerArgs {
    TextSourceArgs source = {};
    std::string output_path = {};
    TokenizerModel model = TokenizerModel::bpe;
    VocabularyLimit limit = VocabularyLimit::hard;
    std::int64_t vocab_size = 4096;
    int num_threads = 1;
    /// Bytes of text the pieces are learned from, taken evenly over the whole corpus.
    std::int64_t sample_bytes = std::int64_t{10} << 20;
    std::string eod_piece = "<|endoftext|>";
    /// Called once the sample is drawn, before the (silent) training.
    std::function<void(std::int64_t sampled_bytes, std::int64_t corpus_bytes)> on_sample_drawn = {};
};

struct TrainTokenizerResult {
    std::int64_t vocab_size = 0;
    std::int64_t sampled_bytes = 0;
    TextCounts counts;
};

/// Learns a SentencePiece model: identity normalisation, no dummy prefix, every blank kept, byte fallback, id 0 the
/// end-of-document piece and id 1 the unknown piece. A line break is always a token of its own; where the corpus
/// indents its lines often, the break and all blanks of the indentation but the last are one token (the last belongs to
/// the word). The trainer sees the text in pieces of at most 4 KiB, cut between lines or words, so no line is too long
/// for it. The file appears under output_path only when complete. Throws DataError if the corpus cannot give vocab_size
/// pieces (with the largest size that it can) or if vocab_size is too small for the byte pieces and the characters
/// (with the smallest size).
TrainTokenizerResult train_tokenizer(const TrainTokenizerArgs& args);

}  // namespace tessera::data
