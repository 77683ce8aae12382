#include "data/text_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tessera::data {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kKeysListed = 12;

/// What is wrong with the file as a source of text, beginning with its path; empty if nothing is.
std::string fault_of(const std::string& path) try {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (!std::filesystem::exists(status)) return path + " no such file";
    if (std::filesystem::is_directory(status)) return path + " is a folder, not a file";
    if (!std::filesystem::is_regular_file(status)) return path + " is not a regular file";
    ByteSource source(path);
    return {};
} catch (const core::DataError& error) {
    return error.what();
}

bool named_like_jsonl(const std::string& path) {
    std::filesystem::path name(path);
    if (const auto packed = name.extension(); packed == ".gz" || packed == ".zst" || packed == ".zstd") {
        name.replace_extension();
    }
    const auto extension = name.extension();
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
    std::vector<std::string> faults;
    for (const std::string& path : args_.paths) {
        std::string fault = fault_of(path);
        if (!fault.empty()) {
            faults.push_back(std::move(fault));
        } else {
            total_bytes_ += static_cast<std::int64_t>(std::filesystem::file_size(path));
        }
    }
    if (!faults.empty()) core::raise<core::DataError>("cannot read text: {}", fmt::join(faults, "; "));
}

std::int64_t TextSource::bytes_read() const {
    return bytes_of_ended_files_ + (file_ != nullptr ? file_->file_bytes_read() : 0);
}

bool TextSource::open_next_file() {
    if (file_index_ == args_.paths.size()) return false;
    const std::string& path = args_.paths[file_index_];
    file_ = std::make_unique<ByteSource>(path);
    is_jsonl_ = args_.format == TextFormat::jsonl || (args_.format == TextFormat::by_name && named_like_jsonl(path));
    separator_ = is_jsonl_ ? "\n" : args_.separator;
    repair_ = Utf8Repair();
    repaired_in_file_ = 0;
    buffer_.clear();
    buffer_start_ = 0;
    search_from_ = 0;
    line_ = 0;
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
    raw.resize(file_->read(raw));
    if (raw.empty()) {
        file_ended_ = true;
        repair_.finish(buffer_);
    } else {
        repair_.append(raw, buffer_);
    }
    count_invalid(repair_.replaced() - repaired_in_file_,
                  fmt::format("{} at byte {}{}", args_.paths[file_index_], repair_.first_offset(),
                              file_->compression() == Compression::none ? "" : " of the unpacked text"));
    repaired_in_file_ = repair_.replaced();
    return true;
}

void TextSource::finish_file() {
    bytes_of_ended_files_ += file_->file_bytes_read();
    file_.reset();
    ++file_index_;
}

bool TextSource::next_raw(std::string& raw) {
    while (true) {
        if (file_ == nullptr && !open_next_file()) return false;
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
