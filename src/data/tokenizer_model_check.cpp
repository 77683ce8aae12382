#include "data/tokenizer_model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::data {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr std::uint64_t kNormalizerSpec = 3;
constexpr std::uint64_t kDenormalizerSpec = 5;
constexpr std::uint64_t kPrecompiledCharsMap = 2;

constexpr std::int64_t kLongestRuleBytes = 256;
/// The library has room for so many rules that fit one place.
constexpr std::int64_t kMostRules = 32;

struct Field {
    std::uint64_t number = 0;
    std::string_view content;  // of length-delimited fields
};

/// Reads a message of Protocol Buffers field by field.
class Message {
public:
    explicit Message(std::string_view bytes) : bytes_(bytes) {}

    /// The next field; nothing at the end or where the message is malformed.
    std::optional<Field> next() {
        std::uint64_t tag = 0;
        std::uint64_t value = 0;
        if (bytes_.empty() || !read_number(tag)) return std::nullopt;
        Field field{tag >> 3, {}};
        switch (tag & 7) {
            case 0:
                return read_number(value) ? std::optional(field) : std::nullopt;
            case 1:
                return take(8, field.content) ? std::optional(Field{field.number, {}}) : std::nullopt;
            case 2:
                return read_number(value) && take(value, field.content) ? std::optional(field) : std::nullopt;
            case 5:
                return take(4, field.content) ? std::optional(Field{field.number, {}}) : std::nullopt;
            default:
                return std::nullopt;
        }
    }
    bool at_end() const { return bytes_.empty(); }

private:
    bool take(std::uint64_t count, std::string_view& content) {
        if (count > bytes_.size()) return false;
        content = bytes_.substr(0, count);
        bytes_.remove_prefix(count);
        return true;
    }
    bool read_number(std::uint64_t& number) {
        number = 0;
        for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
            const auto byte = static_cast<unsigned char>(bytes_.front());
            bytes_.remove_prefix(1);
            number |= std::uint64_t{byte & 0x7FU} << shift;
            if (byte < 0x80) return true;
        }
        return false;
    }

    std::string_view bytes_;
};

std::uint32_t little_endian(std::string_view bytes) {
    std::uint32_t value = 0;
    for (unsigned k = 0; k < 4; ++k) value |= std::uint32_t{static_cast<unsigned char>(bytes[k])} << (8 * k);
    return value;
}

/// A trie of rules as a double array: unit u has a label (its byte, bit 31 clear), a mark for "a rule ends here" and an
/// offset; the child by byte c stands at base ^ c, where base = (place of u) ^ offset, and the rule's value at base.
class RuleTrie {
public:
    RuleTrie(std::string_view units, std::size_t text_bytes) : text_bytes_(text_bytes) {
        for (std::size_t at = 0; at + 4 <= units.size(); at += 4) units_.push_back(little_endian(units.substr(at)));
        known_.resize(units_.size());
    }

    bool is_sound() { return !units_.empty() && visit(offset(units_[0]), 0).has_value(); }

private:
    /// What lies below a base: the longest way down, and the most rules on one.
    struct Below {
        bool seen = false;
        bool done = false;
        std::int64_t height = 0;
        std::int64_t rules = 0;
    };

    static std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
    static bool ends_rule(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }

    /// Nothing if a way leads outside, does not end, is too long or holds too many rules.
    std::optional<Below> visit(std::uint32_t base, std::int64_t depth) {
        if ((std::uint64_t{base} | 0xFF) >= units_.size() || depth > kLongestRuleBytes) return std::nullopt;
        if (known_[base].done) {
            if (depth + known_[base].height > kLongestRuleBytes) return std::nullopt;
            return known_[base];
        }
        if (known_[base].seen) return std::nullopt;
        known_[base].seen = true;
        Below below{.seen = true, .done = true, .height = 0, .rules = 0};
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t unit = units_[base ^ byte];
            if ((unit & (1U << 31 | 0xFF)) != byte) continue;
            const std::uint32_t next = base ^ byte ^ offset(unit);
            const std::optional<Below> child = visit(next, depth + 1);
            if (!child) return std::nullopt;
            if (ends_rule(unit) && (units_[next] & ~(1U << 31)) >= text_bytes_) return std::nullopt;
            below.height = std::max(below.height, child->height + 1);
            below.rules = std::max(below.rules, child->rules + (ends_rule(unit) ? 1 : 0));
        }
        if (below.rules > kMostRules) return std::nullopt;
        known_[base] = below;
        return below;
    }

    std::vector<std::uint32_t> units_;
    std::vector<Below> known_;
    std::size_t text_bytes_;
};

/// A map is: u32 bytes of the trie, the trie, strings that end in NUL.
bool is_sound_map(std::string_view map) {
    if (map.empty()) return true;
    if (map.size() <= 4) return false;
    const std::size_t trie_bytes = little_endian(map);
    map.remove_prefix(4);
    if (trie_bytes >= map.size() || trie_bytes % 4 != 0) return false;
    const std::string_view text = map.substr(trie_bytes);
    return text.back() == '\0' && RuleTrie(map.substr(0, trie_bytes), text.size()).is_sound();
}

}  // namespace

std::string tokenizer_model_fault(std::string_view model) {
    Message message(model);
    while (const std::optional<Field> field = message.next()) {
        if (field->number != kNormalizerSpec && field->number != kDenormalizerSpec) continue;
        Message spec(field->content);
        while (const std::optional<Field> part = spec.next()) {
            if (part->number == kPrecompiledCharsMap && !is_sound_map(part->content)) {
                return fmt::format("its {}normalisation rules are damaged ({} bytes)",
                                   field->number == kDenormalizerSpec ? "de" : "", part->content.size());
            }
        }
        if (!spec.at_end()) return "it is cut short or damaged";
    }
    return message.at_end() ? "" : "it is cut short or damaged";
}

}  // namespace tessera::data
