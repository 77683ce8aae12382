#include "data/utf8.h"

#include <cstring>

namespace tessera::data {
namespace {

enum class Form { valid, ill_formed, unfinished };

struct Sequence {
    Form form;
    std::size_t bytes;
};

struct LeadByte {
    std::size_t length;
    unsigned char second_low;
    unsigned char second_high;
};

/// Length 0: the byte can start nothing. Bounds of the second byte: Unicode 15.0, table 3-7.
LeadByte lead_byte(unsigned char lead) {
    if (lead < 0xC2) return {0, 0, 0};
    if (lead < 0xE0) return {2, 0x80, 0xBF};
    if (lead == 0xE0) return {3, 0xA0, 0xBF};
    if (lead < 0xF0) return {3, 0x80, 0xBF};
    if (lead == 0xF0) return {4, 0x90, 0xBF};
    if (lead < 0xF4) return {4, 0x80, 0xBF};
    if (lead == 0xF4) return {4, 0x80, 0x8F};
    return {0, 0, 0};
}

Sequence classify(const char* text, std::size_t available) {
    const auto at = [text](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    if (at(0) < 0x80) return {Form::valid, 1};
    const LeadByte lead = lead_byte(at(0));
    if (lead.length == 0) return {Form::ill_formed, 1};
    for (std::size_t k = 1; k < lead.length; ++k) {
        if (k == available) return {Form::unfinished, k};
        const unsigned char low = k == 1 ? lead.second_low : 0x80;
        const unsigned char high = k == 1 ? lead.second_high : 0xBF;
        if (at(k) < low || at(k) > high) return {Form::ill_formed, k};
    }
    const bool surrogate = at(0) == 0xED && at(1) >= 0xA0;
    return {surrogate ? Form::ill_formed : Form::valid, lead.length};
}

/// Number of leading bytes that are ASCII, found eight at a time.
std::size_t ascii_prefix(const char* text, std::size_t available) {
    std::size_t done = 0;
    for (; done + 8 <= available; done += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, text + done, 8);
        if ((word & 0x8080808080808080ULL) != 0) break;
    }
    while (done < available && static_cast<unsigned char>(text[done]) < 0x80) ++done;
    return done;
}

}  // namespace

void Utf8Repair::replace(std::int64_t offset, std::string& out) {
    if (first_offset_ < 0) first_offset_ = offset;
    ++replaced_;
    out += kReplacementCharacter;
}

void Utf8Repair::append(std::string_view bytes, std::string& out) {
    std::string joined;
    if (!pending_.empty()) {
        joined = pending_;
        joined += bytes;
        bytes = joined;
        consumed_ -= static_cast<std::int64_t>(pending_.size());
        pending_.clear();
    }
    std::size_t done = 0;
    while (done < bytes.size()) {
        const std::size_t plain = ascii_prefix(bytes.data() + done, bytes.size() - done);
        out.append(bytes.data() + done, plain);
        done += plain;
        if (done == bytes.size()) break;
        const Sequence next = classify(bytes.data() + done, bytes.size() - done);
        if (next.form == Form::unfinished) {
            pending_.assign(bytes.substr(done));
            break;
        }
        if (next.form == Form::valid) {
            out.append(bytes.data() + done, next.bytes);
        } else {
            replace(consumed_ + static_cast<std::int64_t>(done), out);
        }
        done += next.bytes;
    }
    consumed_ += static_cast<std::int64_t>(bytes.size());
}

void Utf8Repair::finish(std::string& out) {
    if (pending_.empty()) return;
    replace(consumed_ - static_cast<std::int64_t>(pending_.size()), out);
    pending_.clear();
}

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\n\r\v\f") == std::string_view::npos;
}

}  // namespace tessera::data
