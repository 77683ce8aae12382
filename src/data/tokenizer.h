#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/utf8.h"

namespace tessera::data {

/// A SentencePiece model. Copies share the model; every const function may be called from several threads at once.
///
/// With models of train_tokenizer() (identity normalisation, byte fallback, no dummy prefix) decode(encode(x)) == x for
/// every valid UTF-8 text x, NUL and U+2581 included: SentencePiece writes a blank as U+2581, so a real U+2581 and NUL
/// are carried by their byte tokens (<0xE2><0x96><0x81>, <0x00>), which every SentencePiece decoder reads back.
class Tokenizer {
public:
    /// Throws DataError if the file is missing, is no SentencePiece model or has no end-of-document piece
    /// (its end-of-sentence piece, or one named <|endoftext|>).
    static Tokenizer load(const std::string& path);

    std::int64_t vocab_size() const;
    std::int32_t eod_id() const;
    const std::string& path() const;
    /// SHA-256 of the model file, 64 hexadecimal digits: the identity that shards carry.
    const std::string& sha256() const;
    /// The name of a token as the model spells it, e.g. "▁the" or "<0x0A>". Throws DataError if id is out of range.
    std::string piece(std::int32_t id) const;

    /// Token ids of `text`, without an end-of-document token. Ill-formed UTF-8 is read as U+FFFD.
    /// Texts above one MiB are cut before a line break (or else a blank), which changes nothing for models of
    /// train_tokenizer(), whose pieces never reach across one. BPE models of that kind encode a few lines at a time:
    /// the same tokens, sooner. Throws DataError if the text holds U+2581 or NUL and the model has no byte pieces.
    std::vector<std::int32_t> encode(std::string_view text) const;

    /// Text of `ids`: control pieces give nothing, an unknown piece or an incomplete byte sequence gives U+FFFD.
    /// Throws DataError if an id is out of range.
    std::string decode(std::span<const std::int32_t> ids) const;

private:
    friend class StreamDecoder;
    struct Impl;
    explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// Whether the first token starts a text (models with a dummy prefix then drop one blank) or goes on from an earlier
/// one.
enum class DecodeFrom { text_start, continuation };

/// Decodes token by token: all results of push() and finish() joined are decode() of all the ids. Bytes of an
/// unfinished character are kept back until the token that completes it.
class StreamDecoder {
public:
    explicit StreamDecoder(Tokenizer tokenizer, DecodeFrom from = DecodeFrom::text_start);
    std::string push(std::int32_t id);
    std::string finish();

private:
    Tokenizer tokenizer_;
    Utf8Repair repair_;
    bool drop_blank_;
};

}  // namespace tessera::data
