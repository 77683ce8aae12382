#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::data {

/// Turns any bytes, given in pieces, into valid UTF-8. Each ill-formed maximal subpart becomes one U+FFFD
/// (Unicode 15.0, section 3.9, "U+FFFD Substitution of Maximal Subparts"), except that a surrogate written as three
/// bytes counts as one. The result does not depend on where the pieces were cut.
class Utf8Repair {
public:
    /// Appends to `out` what is certain so far; up to three bytes of an unfinished character are kept back.
    void append(std::string_view bytes, std::string& out);
    /// Ends the text: an unfinished character becomes U+FFFD.
    void finish(std::string& out);

    std::int64_t replaced() const { return replaced_; }
    /// Offset of the first ill-formed byte from the start of the text; -1 if there was none.
    std::int64_t first_offset() const { return first_offset_; }

private:
    void replace(std::int64_t offset, std::string& out);

    std::string pending_;
    std::int64_t consumed_ = 0;
    std::int64_t replaced_ = 0;
    std::int64_t first_offset_ = -1;
};

/// True for an empty text and for one of blanks, tabs and line ends only.
bool is_blank(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace tessera::data
