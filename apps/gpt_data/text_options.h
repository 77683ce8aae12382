#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "data/text_source.h"

namespace tessera::apps {

/// The options by which both tokenizer and tokenize read text, as the command line gives them.
struct TextOptions {
    data::TextSourceArgs source;
    std::string format = "by_name";
    std::string separator = "\\n\\n";
    bool strict = false;
    bool skip_malformed = false;

    void add_to(CLI::App& command);
    /// The settings they stand for. Throws UsageError for an unknown escape in the separator.
    data::TextSourceArgs resolved() const;
};

/// "12 documents, ... 3 invalid UTF-8 replaced (first in FILE at byte N)": what was skipped or mended, one line each.
void print_text_counts(const data::TextCounts& counts);

}  // namespace tessera::apps
