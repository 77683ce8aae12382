#include "common/help_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

namespace tessera::apps {
namespace {

struct Entry {
    std::string name;
    std::string description;
};

constexpr std::size_t kIndent = 2;
constexpr std::size_t kWidestName = 30;

/// Options that every program has come last.
bool is_common(const CLI::Option& option) {
    return option.check_lname("help") || option.check_lname("version") || option.check_lname("completion");
}

/// "INT:POSITIVE" -> "INT"
std::string type_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    return type.substr(0, type.find(':'));
}

Entry entry_of(const CLI::Option& option) {
    Entry entry{.name = {}, .description = option.get_description()};
    if (!option.nonpositional()) {
        entry.name = option.get_name(true, false);
        if (option.get_expected_max() == CLI::detail::expected_max_vector_size) entry.name += " ...";
        return entry;
    }
    for (const std::string& letter : option.get_snames()) entry.name += "-" + letter + ", ";
    entry.name += "--" + option.get_lnames().front();
    if (option.get_items_expected_max() == 0) return entry;
    entry.name += " " + type_of(option);
    if (option.get_required()) entry.description += " (required)";
    if (!option.get_default_str().empty()) entry.description += " [" + option.get_default_str() + "]";
    return entry;
}

/// Words of a text in lines of at most so many characters.
std::vector<std::string> wrapped(const std::string& text, std::size_t columns) {
    std::vector<std::string> lines(1);
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        if (!lines.back().empty() && lines.back().size() + 1 + word.size() > columns) lines.emplace_back();
        lines.back() += (lines.back().empty() ? "" : " ") + word;
        begin = end + 1;
    }
    return lines;
}

std::string list_of(const std::string& title, const std::vector<Entry>& entries) {
    if (entries.empty()) return {};
    std::size_t widest = 0;
    for (const Entry& entry : entries) {
        if (entry.name.size() <= kWidestName) widest = std::max(widest, entry.name.size());
    }
    const std::size_t column = kIndent + widest + 2;
    std::string text = title;
    for (const Entry& entry : entries) {
        std::string head = std::string(kIndent, ' ') + entry.name;
        if (head.size() + 2 > column) {
            text += head + "\n";
            head.clear();
        }
        for (const std::string& line : wrapped(entry.description, kScreenColumns - column)) {
            text += head + std::string(column - head.size(), ' ') + line + "\n";
            head.clear();
        }
    }
    return text;
}

}  // namespace

std::string help_text(const CLI::App& app, const std::string& command) {
    std::vector<Entry> positionals;
    std::vector<Entry> options;
    std::vector<Entry> common;
    std::string usage = "Usage: " + command + " [OPTIONS]";
    for (const CLI::Option* option : app.get_options()) {
        if (option->nonpositional()) {
            (is_common(*option) ? common : options).push_back(entry_of(*option));
        } else {
            positionals.push_back(entry_of(*option));
            usage += option->get_required() ? " " + positionals.back().name : " [" + positionals.back().name + "]";
        }
    }
    options.insert(options.end(), common.begin(), common.end());
    std::vector<Entry> subcommands;
    for (const CLI::App* subcommand : app.get_subcommands({})) {
        subcommands.push_back({.name = subcommand->get_name(), .description = subcommand->get_description()});
    }
    if (!subcommands.empty()) usage += " SUBCOMMAND";
    std::string text;
    for (const std::string& line : wrapped(app.get_description(), kScreenColumns)) text += line + "\n";
    text += usage + "\n" + list_of("", positionals) + list_of("Options:\n", options) +
            list_of("Subcommands (each has --help):\n", subcommands);
    // Footers begin and end with whatever line ends their authors liked.
    const std::string footer = app.get_footer();
    const std::size_t first = footer.find_first_not_of('\n');
    if (first == std::string::npos) return text;
    return text + footer.substr(first, footer.find_last_not_of('\n') + 1 - first) + "\n";
}

}  // namespace tessera::apps
