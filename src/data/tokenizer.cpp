#include "data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "data/sha256.h"
#include "data/tokenizer_model_check.h"

namespace tessera::data {
namespace {

constexpr std::string_view kBlankSymbol = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kEodPiece = "<|endoftext|>";
constexpr std::size_t kLongestSegmentBytes = std::size_t{1} << 20;
/// SentencePiece's time per byte grows with the length of what it encodes at once.
constexpr std::size_t kLineSegmentBytes = std::size_t{1} << 10;

std::string read_model_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) core::raise<core::DataError>("cannot open the tokenizer model {}: {}", path, std::strerror(errno));
    std::ostringstream content;
    content << file.rdbuf();
    if (file.bad() || content.str().empty()) {
        core::raise<core::DataError>(
                "the tokenizer model {} is empty or is not a file; make one with 'gpt_data tokenizer'", path);
    }
    return content.str();
}

/// Why the library refuses the model; empty if it does not.
std::string load_into(sentencepiece::SentencePieceProcessor& processor, const std::string& content) try {
    const auto status = processor.LoadFromSerializedProto(content);
    if (!status.ok()) return status.message();
    return processor.GetPieceSize() == 0 ? "it has no pieces" : "";
} catch (const std::exception& error) {
    // What the library's tries throw.
    return error.what();
}

std::string blanks_restored(const std::string& piece) {
    std::string text;
    for (std::size_t k = 0; k < piece.size();) {
        if (piece.compare(k, kBlankSymbol.size(), kBlankSymbol) == 0) {
            text += ' ';
            k += kBlankSymbol.size();
        } else {
            text += piece[k++];
        }
    }
    return text;
}

/// Bytes of `text` to encode at once: all of it, or up to the last line break, blank or character start that fits.
std::size_t segment_bytes(std::string_view text) {
    if (text.size() <= kLongestSegmentBytes) return text.size();
    for (const char boundary : {'\n', ' '}) {
        const std::size_t at = text.rfind(boundary, kLongestSegmentBytes);
        if (at != std::string_view::npos && at > 0) return at;
    }
    std::size_t at = kLongestSegmentBytes;
    while (at > 1 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
}

/// As segment_bytes(), but no more lines than needed: for models whose pieces begin with line breaks or hold none.
std::size_t line_segment_bytes(std::string_view text) {
    if (text.size() <= kLineSegmentBytes) return text.size();
    std::size_t at = text.rfind('\n', kLineSegmentBytes);
    if (at == std::string_view::npos || at == 0) at = text.find('\n', kLineSegmentBytes);
    return at <= kLongestSegmentBytes ? at : segment_bytes(text);
}

}  // namespace

struct Tokenizer::Impl {
    std::string path;
    std::string sha256;
    sentencepiece::SentencePieceProcessor processor;
    std::vector<std::string> bytes_of_id;
    std::array<std::int32_t, 256> id_of_byte{};
    bool has_bytes = true;
    bool has_dummy_prefix = false;
    bool cuts_at_line_breaks = false;
    std::int32_t eod_id = -1;

    void fill_tables();
    void find_eod();
    bool carries_exactly(const std::string& text) const;
    bool may_cut_at_line_breaks() const;
    void encode_segment(std::string_view text, std::vector<std::int32_t>& ids) const;
    void encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const;
    const std::string& bytes_of(std::int32_t id) const;
};

void Tokenizer::Impl::fill_tables() {
    id_of_byte.fill(-1);
    bytes_of_id.resize(static_cast<std::size_t>(processor.GetPieceSize()));
    for (int id = 0; id < processor.GetPieceSize(); ++id) {
        std::string& bytes = bytes_of_id[static_cast<std::size_t>(id)];
        const std::string& piece = processor.IdToPiece(id);
        if (processor.IsByte(id)) {
            const unsigned long value = std::stoul(piece.substr(1), nullptr, 16);
            bytes.assign(1, static_cast<char>(value));
            id_of_byte.at(value) = id;
        } else if (processor.IsUnknown(id)) {
            bytes = kReplacementCharacter;
        } else if (!processor.IsControl(id)) {
            bytes = blanks_restored(piece);
        }
    }
    for (const std::int32_t id : id_of_byte) has_bytes = has_bytes && id >= 0;
    std::vector<int> probe;
    // The call that returns ids ends the process where this one fails.
    if (!processor.Encode("a", &probe).ok()) probe.clear();
    has_dummy_prefix = !probe.empty() && bytes_of_id.at(static_cast<std::size_t>(probe.front())).starts_with(' ');
    cuts_at_line_breaks = may_cut_at_line_breaks();
}

bool Tokenizer::Impl::carries_exactly(const std::string& text) const {
    std::string joined;
    for (const int id : processor.EncodeAsIds(text)) joined += bytes_of_id.at(static_cast<std::size_t>(id));
    return joined == text;
}

/// True for BPE models in which nothing reaches across the start of a line: then the lines' tokens, one after the
/// other, are the text's. Not for unigram models, whose sums of scores are rounded differently in shorter texts.
bool Tokenizer::Impl::may_cut_at_line_breaks() const {
    bool has_line_break = false;
    for (int id = 0; id < processor.GetPieceSize(); ++id) {
        if (processor.IsByte(id) || processor.IsControl(id) || processor.IsUnknown(id)) continue;
        const std::string& bytes = bytes_of_id[static_cast<std::size_t>(id)];
        if (bytes.find('\n', 1) != std::string::npos) return false;
        has_line_break = has_line_break || bytes == "\n";
        // BPE's scores are the negated ranks of the merges.
        const float score = processor.GetScore(id);
        if (score > 0 || score != std::floor(score)) return false;
    }
    return has_line_break && carries_exactly("a") && carries_exactly(" a  \r\n b\t ");
}

void Tokenizer::Impl::find_eod() {
    eod_id = processor.eos_id();
    if (eod_id >= 0) return;
    const int named = processor.PieceToId(kEodPiece);
    if (processor.IdToPiece(named) != kEodPiece) {
        core::raise<core::DataError>(
                "the tokenizer model {} has no end-of-document piece: neither an end-of-sentence piece nor {}", path,
                kEodPiece);
    }
    eod_id = named;
}

void Tokenizer::Impl::encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::vector<int> part;
    while (!text.empty()) {
        const std::size_t count = cuts_at_line_breaks ? line_segment_bytes(text) : segment_bytes(text);
        const auto status = processor.Encode(text.substr(0, count), &part);
        if (!status.ok()) core::raise<core::DataError>("tokenizer {}: {}", path, status.message());
        ids.insert(ids.end(), part.begin(), part.end());
        text.remove_prefix(count);
    }
}

void Tokenizer::Impl::encode_segment(std::string_view text, std::vector<std::int32_t>& ids) const {
    const std::string_view whole = text;
    while (true) {
        const std::size_t at = std::min(text.find(kBlankSymbol), text.find('\0'));
        if (at == std::string_view::npos) break;
        if (!has_bytes) {
            core::raise<core::DataError>(
                    "the text holds {} at byte {}, which the tokenizer {} cannot carry: it has no byte pieces; retrain "
                    "it with "
                    "byte fallback or remove the character",
                    text[at] == '\0' ? "NUL" : "U+2581", static_cast<std::size_t>(text.data() - whole.data()) + at,
                    path);
        }
        encode_plain(text.substr(0, at), ids);
        const std::size_t count = text[at] == '\0' ? 1 : kBlankSymbol.size();
        for (const char byte : text.substr(at, count)) ids.push_back(id_of_byte[static_cast<unsigned char>(byte)]);
        text.remove_prefix(at + count);
    }
    encode_plain(text, ids);
}

const std::string& Tokenizer::Impl::bytes_of(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= bytes_of_id.size()) {
        core::raise<core::DataError>("token id {} is outside the vocabulary of {} pieces of the tokenizer {}", id,
                                     bytes_of_id.size(), path);
    }
    return bytes_of_id[static_cast<std::size_t>(id)];
}

Tokenizer Tokenizer::load(const std::string& path) {
    auto impl = std::make_shared<Impl>();
    impl->path = path;
    const std::string content = read_model_file(path);
    std::string fault = tokenizer_model_fault(content);
    if (fault.empty()) fault = load_into(impl->processor, content);
    if (!fault.empty()) {
        core::raise<core::DataError>(
                "{} is not a SentencePiece model ({} bytes: {}); make one with 'gpt_data tokenizer'", path,
                content.size(), fault);
    }
    impl->sha256 = sha256_hex(content);
    impl->fill_tables();
    impl->find_eod();
    return Tokenizer(std::move(impl));
}

std::int64_t Tokenizer::vocab_size() const {
    return static_cast<std::int64_t>(impl_->bytes_of_id.size());
}
std::int32_t Tokenizer::eod_id() const {
    return impl_->eod_id;
}
const std::string& Tokenizer::path() const {
    return impl_->path;
}
const std::string& Tokenizer::sha256() const {
    return impl_->sha256;
}

std::string Tokenizer::piece(std::int32_t id) const {
    impl_->bytes_of(id);
    return impl_->processor.IdToPiece(id);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    impl_->encode_segment(text, ids);
    return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
    StreamDecoder decoder(*this);
    std::string text;
    for (const std::int32_t id : ids) text += decoder.push(id);
    return text + decoder.finish();
}

StreamDecoder::StreamDecoder(Tokenizer tokenizer, DecodeFrom from)
    : tokenizer_(std::move(tokenizer)),
      drop_blank_(from == DecodeFrom::text_start && tokenizer_.impl_->has_dummy_prefix) {}

std::string StreamDecoder::push(std::int32_t id) {
    std::string_view bytes = tokenizer_.impl_->bytes_of(id);
    std::string text;
    if (bytes.empty()) return text;
    if (drop_blank_ && bytes.front() == ' ') bytes.remove_prefix(1);
    drop_blank_ = false;
    repair_.append(bytes, text);
    return text;
}

std::string StreamDecoder::finish() {
    std::string text;
    repair_.finish(text);
    return text;
}

}  // namespace tessera::data
