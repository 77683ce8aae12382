#include "text_options.h"

#include <fmt/format.h>

#include <cstdio>

namespace tessera::apps {

void TextOptions::add_to(CLI::App& command) {
    command.add_option("files", source.paths, "text, .jsonl, .ndjson or .json, each also packed (.gz, .zst)")
            ->required();
    command.add_option("--format", format, "text, jsonl or by_name")
            ->check(CLI::IsMember({"by_name", "text", "jsonl"}))
            ->capture_default_str();
    command.add_option("--separator", separator, "between documents of a plain text")->capture_default_str();
    command.add_option("--text-key", source.text_key, "key of the text in a JSON line")->capture_default_str();
    command.add_flag("--strict", strict, "refuse invalid UTF-8, do not replace it");
    command.add_flag("--skip-malformed", skip_malformed, "skip malformed JSON lines");
}

data::TextSourceArgs TextOptions::resolved() const {
    data::TextSourceArgs args = source;
    args.format = format == "text"    ? data::TextFormat::text
                  : format == "jsonl" ? data::TextFormat::jsonl
                                      : data::TextFormat::by_name;
    args.separator = data::unescaped(separator);
    args.invalid_utf8 = strict ? data::InvalidUtf8::refuse : data::InvalidUtf8::replace;
    args.malformed_jsonl = skip_malformed ? data::MalformedJsonl::skip : data::MalformedJsonl::refuse;
    return args;
}

void print_text_counts(const data::TextCounts& counts) {
    fmt::print("documents            {}\n", counts.documents);
    fmt::print("text bytes           {}\n", counts.text_bytes);
    fmt::print("empty skipped        {}\n", counts.empty_documents);
    fmt::print(
            "invalid UTF-8        {}{}\n", counts.invalid_utf8,
            counts.invalid_utf8 > 0 ? fmt::format(" replaced by U+FFFD (first: {})", counts.first_invalid_utf8) : "");
    if (counts.malformed_lines > 0) fmt::print("malformed skipped    {}\n", counts.malformed_lines);
    if (counts.lines_without_key > 0) fmt::print("lines without key    {}\n", counts.lines_without_key);
}

}  // namespace tessera::apps
