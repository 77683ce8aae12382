#include "data/text_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tessera::data {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kKeysListed = 12;

/// Why the file cannot be read as text; empty if it can.
std::string unreadable_reason(const std::string& path) {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (!std::filesystem::exists(status)) return "no such file";
    if (std::filesystem::is_directory(status)) return "is a folder, not a file";
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::strerror(errno);
    std::array<unsigned char, 4> magic{};
    file.read(reinterpret_cast<char*>(magic.data()), static_cast<std::streamsize>(magic.size()));
    if (magic[0] == 0x1F && magic[1] == 0x8B)
        return "is compressed with gzip; unpack it first, for example zcat FILE > FILE.txt";
    if (magic == std::array<unsigned char, 4>{0x28, 0xB5, 0x2F, 0xFD})
        return "is compressed with zstd; unpack it first with unzstd";
    return {};
}

bool named_like_jsonl(const std::string& path) {
    const std::string extension = std::filesystem::path(path).extension().string();
    return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

/// The code unit of an escape \uXXXX at `at`, or -1.
int unicode_escape(const std::string& line, std::size_t at) {
    if (at + 6 > line.size() || line[at] != '\\' || line[at + 1] != 'u') return -1;
    int value = 0;
    for (std::size_t k = at + 2; k < at + 6; ++k) {
        if (hex_value(line[k]) < 0) return -1;
        value = value * 16 + hex_value(line[k]);
    }
    return value;
}

/// Rewrites escapes of lone surrogates, which JSON writers emit for broken strings, to \ufffd; returns their number.
std::int64_t repair_surrogate_escapes(std::string& line) {
    std::int64_t repaired = 0;
    for (std::size_t at = line.find('\\'); at != std::string::npos; at = line.find('\\', at)) {
        const int unit = unicode_escape(line, at);
        if (unit < 0) {
            at += 2;
        } else if (unit >= 0xD800 && unit < 0xDC00 && unicode_escape(line, at + 6) >= 0xDC00 &&
                   unicode_escape(line, at + 6) < 0xE000) {
            at += 12;
        } else {
            if (unit >= 0xD800 && unit < 0xE000) {
                line.replace(at + 2, 4, "fffd");
                ++repaired;
            }
            at += 6;
        }
    }
    return repaired;
}

std::string parser_reason(const nlohmann::json::exception& error) {
    const std::string text = error.what();
    const std::size_t colon = text.find(": ");
    return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace

TextSource::TextSource(TextSourceArgs args) : args_(std::move(args)) {
    if (args_.paths.empty()) core::raise<core::UsageError>("no text files were given");
    std::vector<std::string> reasons;
    for (const std::string& path : args_.paths) {
        const std::string reason = unreadable_reason(path);
        if (!reason.empty()) {
            reasons.push_back(fmt::format("{} {}", path, reason));
        } else {
            total_bytes_ += static_cast<std::int64_t>(std::filesystem::file_size(path));
        }
    }
    if (!reasons.empty()) core::raise<core::DataError>("cannot read text: {}", fmt::join(reasons, "; "));
}

bool TextSource::open_next_file() {
    if (file_index_ == args_.paths.size()) return false;
    const std::string& path = args_.paths[file_index_];
    file_ = std::ifstream(path, std::ios::binary);
    if (!file_) core::raise<core::DataError>("cannot open {}: {}", path, std::strerror(errno));
    is_jsonl_ = args_.format == TextFormat::jsonl || (args_.format == TextFormat::by_name && named_like_jsonl(path));
    separator_ = is_jsonl_ ? "\n" : args_.separator;
    repair_ = Utf8Repair();
    repaired_in_file_ = 0;
    buffer_.clear();
    buffer_start_ = 0;
    search_from_ = 0;
    line_ = 0;
    file_open_ = true;
    file_ended_ = false;
    while (buffer_.size() < kByteOrderMark.size() && read_more()) continue;
    if (buffer_.starts_with(kByteOrderMark)) buffer_.erase(0, kByteOrderMark.size());
    return true;
}

void TextSource::count_invalid(std::int64_t count, const std::string& place) {
    if (count == 0) return;
    if (args_.invalid_utf8 == InvalidUtf8::refuse) {
        core::raise<core::DataError>("invalid UTF-8 in {}; without --strict it would be replaced by U+FFFD and counted",
                                     place);
    }
    if (counts_.invalid_utf8 == 0) counts_.first_invalid_utf8 = place;
    counts_.invalid_utf8 += count;
}

bool TextSource::read_more() {
    if (file_ended_) return false;
    if (buffer_start_ > 0) {
        buffer_.erase(0, buffer_start_);
        search_from_ -= buffer_start_;
        buffer_start_ = 0;
    }
    std::string raw(kReadBytes, '\0');
    file_.read(raw.data(), static_cast<std::streamsize>(raw.size()));
    if (file_.bad())
        core::raise<core::EnvironmentError>("reading {} failed: {}", args_.paths[file_index_], std::strerror(errno));
    raw.resize(static_cast<std::size_t>(file_.gcount()));
    bytes_read_ += file_.gcount();
    if (raw.empty()) {
        file_ended_ = true;
        repair_.finish(buffer_);
    } else {
        repair_.append(raw, buffer_);
    }
    count_invalid(repair_.replaced() - repaired_in_file_,
                  fmt::format("{} at byte {}", args_.paths[file_index_], repair_.first_offset()));
    repaired_in_file_ = repair_.replaced();
    return true;
}

void TextSource::finish_file() {
    file_open_ = false;
    file_.close();
    ++file_index_;
}

bool TextSource::next_raw(std::string& raw) {
    while (true) {
        if (!file_open_ && !open_next_file()) return false;
        const std::size_t at = separator_.empty() ? std::string::npos : buffer_.find(separator_, search_from_);
        if (at != std::string::npos) {
            raw.assign(buffer_, buffer_start_, at - buffer_start_);
            buffer_start_ = at + separator_.size();
            search_from_ = buffer_start_;
            ++line_;
            return true;
        }
        const std::size_t kept_back = separator_.empty() ? 0 : separator_.size() - 1;
        search_from_ = std::max(buffer_start_, buffer_.size() - std::min(buffer_.size(), kept_back));
        if (read_more()) continue;
        raw.assign(buffer_, buffer_start_);
        if (!is_jsonl_ && separator_.starts_with('\n') && raw.ends_with('\n')) raw.pop_back();
        buffer_.clear();
        buffer_start_ = 0;
        search_from_ = 0;
        if (raw.empty()) {
            finish_file();
            continue;
        }
        ++line_;
        return true;
    }
}

void TextSource::malformed(std::int64_t column, const std::string& why) {
    if (args_.malformed_jsonl == MalformedJsonl::refuse) {
        core::raise<core::DataError>(
                "{}:{}:{}: {}; one JSON object per line is expected (jq -c rewrites other JSON), or give "
                "--skip-malformed",
                args_.paths[file_index_], line_, column, why);
    }
    ++counts_.malformed_lines;
}

bool TextSource::text_of_line(const std::string& line, std::string& document) {
    nlohmann::json object;
    try {
        object = nlohmann::json::parse(line);
    } catch (const nlohmann::json::parse_error& error) {
        malformed(static_cast<std::int64_t>(error.byte), fmt::format("not valid JSON ({})", parser_reason(error)));
        return false;
    } catch (const nlohmann::json::out_of_range& error) {
        malformed(1, fmt::format("a number that no double holds ({})", parser_reason(error)));
        return false;
    }
    if (!object.is_object()) {
        malformed(1, fmt::format("this line is {} {}", object.is_array() ? "an" : "a", object.type_name()));
        return false;
    }
    ++lines_read_;
    const auto found = object.find(args_.text_key);
    if (found == object.end() || found->is_null()) {
        ++counts_.lines_without_key;
        for (const auto& [key, value] : object.items()) {
            if (keys_seen_.size() < kKeysListed) keys_seen_.insert(key);
        }
        return false;
    }
    if (!found->is_string()) {
        malformed(1,
                  fmt::format("the value of \"{}\" is a {}, a string is expected", args_.text_key, found->type_name()));
        return false;
    }
    ++lines_with_key_;
    document = found->get<std::string>();
    return true;
}

bool TextSource::next(std::string& document) {
    std::string raw;
    while (next_raw(raw)) {
        if (is_jsonl_) {
            if (is_blank(raw)) continue;
            count_invalid(repair_surrogate_escapes(raw), fmt::format("{} in line {}", args_.paths[file_index_], line_));
            if (!text_of_line(raw, document)) continue;
        } else {
            document.swap(raw);
        }
        if (is_blank(document)) {
            ++counts_.empty_documents;
            continue;
        }
        ++counts_.documents;
        counts_.text_bytes += static_cast<std::int64_t>(document.size());
        return true;
    }
    if (lines_read_ > 0 && lines_with_key_ == 0) {
        core::raise<core::DataError>(
                "none of {} JSON lines has the key \"{}\"; keys found: {} (choose one with --text-key)", lines_read_,
                args_.text_key, fmt::join(keys_seen_, ", "));
    }
    return false;
}

std::string unescaped(const std::string& text) {
    std::string out;
    for (std::size_t k = 0; k < text.size(); ++k) {
        if (text[k] != '\\') {
            out += text[k];
            continue;
        }
        const char next = k + 1 < text.size() ? text[k + 1] : '\0';
        ++k;
        if (next == 'n')
            out += '\n';
        else if (next == 't')
            out += '\t';
        else if (next == 'r')
            out += '\r';
        else if (next == '0')
            out += '\0';
        else if (next == '\\')
            out += '\\';
        else if (next == 'x' && k + 2 < text.size() && hex_value(text[k + 1]) >= 0 && hex_value(text[k + 2]) >= 0) {
            out += static_cast<char>(hex_value(text[k + 1]) * 16 + hex_value(text[k + 2]));
            k += 2;
        } else {
            core::raise<core::UsageError>("unknown escape '\\{}' in '{}'; known are \\n \\t \\r \\0 \\\\ \\xHH",
                                          next == '\0' ? std::string() : std::string(1, next), text);
        }
    }
    return out;
}

}  // namespace tessera::data
