#include "common/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string_view>

namespace tessera::apps {
namespace {

enum class ValueKind : std::uint8_t { none, any, file, choices };

/// One option, subcommand or override as a shell sees it.
struct Word {
    std::string command;  ///< the subcommand it belongs to; empty: the program
    std::vector<std::string> names;
    std::string description;
    ValueKind kind = ValueKind::none;
    std::vector<std::string> choices;
};

/// CLI11 writes the values of a checked option into its type: "TEXT:{bpe,unigram}".
std::vector<std::string> choices_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const std::size_t begin = type.find('{');
    const std::size_t end = type.find('}', std::min(begin, type.size()));
    if (end == std::string::npos) return {};
    return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

/// Numbers are not the names of files.
ValueKind kind_of(const CLI::Option& option, const std::vector<std::string>& choices) {
    if (option.get_items_expected_max() == 0) return ValueKind::none;
    if (!choices.empty()) return ValueKind::choices;
    return option.get_type_name().rfind("TEXT", 0) == 0 ? ValueKind::file : ValueKind::any;
}

void add_words(const CLI::App& app, const std::string& command, const std::vector<CompletedKey>& keys,
               std::vector<Word>& words) {
    for (const CLI::Option* option : app.get_options()) {
        if (!option->nonpositional()) continue;
        Word word{.command = command, .names = {}, .description = option->get_description(), .choices = {}};
        for (const std::string& letter : option->get_snames()) word.names.push_back("-" + letter);
        for (const std::string& name : option->get_lnames()) word.names.push_back("--" + name);
        word.choices = choices_of(*option);
        word.kind = kind_of(*option, word.choices);
        words.push_back(std::move(word));
    }
    if (!app.get_allow_extras()) return;
    for (const CompletedKey& key : keys) {
        const ValueKind kind = !key.values.empty() ? ValueKind::choices
                               : key.is_path       ? ValueKind::file
                                                   : ValueKind::any;
        words.push_back({.command = command,
                         .names = {"--" + key.name + "="},
                         .description = key.description,
                         .kind = kind,
                         .choices = key.values});
    }
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : std::string(separator)) + part;
    return text;
}

/// A word for a shell, in single quotes. `escape`: how a single quote is written inside them.
std::string quoted(const std::string& text, std::string_view escape) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string(escape) : std::string(1, c);
    return result + "'";
}

/// Two functions that bash and zsh both understand: the words after a command, and the values of an option.
std::string shared_functions(const std::string& function, const std::vector<std::string>& commands,
                             const std::vector<Word>& words) {
    std::string list = function + "_words() {\n    case \"$1\" in\n";
    std::string values = function + "_values() {  # 1: it takes none, 2: a file\n    case \"$1 $2\" in\n";
    std::vector<std::string> places = commands;
    places.insert(places.begin(), "");
    for (const std::string& command : places) {
        std::string names = command.empty() ? joined(commands, " ") : "";
        for (const Word& word : words) {
            if (word.command != command) continue;
            names += " " + joined(word.names, " ");
            if (word.kind == ValueKind::none) continue;
            std::vector<std::string> patterns;
            for (const std::string& name : word.names) {
                patterns.push_back(quoted(command + " " + name.substr(0, name.find('=')), "'\\''"));
            }
            values += "    " + joined(patterns, "|") + ") ";
            if (word.kind == ValueKind::file) values += "return 2 ";
            if (word.kind == ValueKind::choices) values += "printf '%s\\n' " + joined(word.choices, " ") + " ";
            values += ";;\n";
        }
        list += "    '" + command + "') printf '%s\\n' " + names + " ;;\n";
    }
    return list + "    esac\n}\n" + values + "    *) return 1 ;;\n    esac\n}\n";
}

constexpr std::string_view kBash = R"sh(FUNCTION() {
    local IFS=$'\n' current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local option='' command='' word values kind
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in COMMANDS) command=$word && break ;; esac
    done
    # Bash takes --a.b=c for three words.
    if [[ $current == = ]]; then
        option=$before current=''
    elif [[ $before == = ]]; then
        option=${COMP_WORDS[COMP_CWORD-2]}
    elif [[ $before == -* && $before != --*.* ]]; then
        option=$before
    fi
    COMPREPLY=()
    if [[ -n $option ]]; then
        values=$(FUNCTION_values "$command" "$option")
        kind=$?
        if [[ $kind == 0 ]]; then
            COMPREPLY=($(compgen -W "$values" -- "$current"))
            return
        fi
    fi
    if [[ -z $option || $kind == 1 ]] && [[ $current == -* || ( -n 'COMMANDS' && -z $command ) ]]; then
        COMPREPLY=($(compgen -W "$(FUNCTION_words "$command")" -- "$current"))
        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
        return
    fi
    COMPREPLY=($(compgen -f -- "$current"))
    compopt -o filenames 2>/dev/null
    return 0
}
complete -F FUNCTION NAME
)sh";

constexpr std::string_view kZsh = R"sh(FUNCTION() {
    emulate -L zsh
    local option='' command='' word output kind
    local -a found
    for word in ${words[2,CURRENT-1]}; do
        case $word in COMMANDS) command=$word && break ;; esac
    done
    if [[ $PREFIX == --*=* ]]; then
        option=${PREFIX%%=*}
        compset -P 1 '*='
    elif [[ ${words[CURRENT-1]} == -* && ${words[CURRENT-1]} != --*.* ]]; then
        option=${words[CURRENT-1]}
    fi
    if [[ -n $option ]]; then
        output=$(FUNCTION_values "$command" "$option")
        kind=$?
        found=(${(f)output})
        [[ $kind == 0 ]] && { compadd -a found; return }
    fi
    if [[ -z $option || $kind == 1 ]] && [[ $PREFIX == -* || ( -n 'COMMANDS' && -z $command ) ]]; then
        found=(${(f)"$(FUNCTION_words "$command")"})
        compadd -S '' -- ${(M)found:#*=}
        compadd -- ${found:#*=}
        return
    fi
    _files
}
compdef FUNCTION NAME
)sh";

std::string replaced(std::string_view text, std::string_view mark, const std::string& by) {
    std::string result;
    for (std::size_t begin = 0;;) {
        const std::size_t at = text.find(mark, begin);
        result += text.substr(begin, at == std::string_view::npos ? at : at - begin);
        if (at == std::string_view::npos) return result;
        result += by;
        begin = at + mark.size();
    }
}

std::string fish_script(const std::string& program, const std::vector<const CLI::App*>& commands,
                        const std::vector<std::string>& command_names, const std::vector<Word>& words) {
    const std::string begin = "complete -c " + program;
    std::string script;
    for (const CLI::App* command : commands) {
        script += begin + " -n __fish_use_subcommand -f -a " + command->get_name() + " -d " +
                  quoted(command->get_description(), "\\'") + "\n";
    }
    for (const Word& word : words) {
        script += begin;
        if (!word.command.empty()) script += " -n '__fish_seen_subcommand_from " + word.command + "'";
        if (word.command.empty() && !command_names.empty()) script += " -n __fish_use_subcommand";
        for (const std::string& name : word.names) {
            const bool is_long = name.rfind("--", 0) == 0;
            script += (is_long ? " -l " : " -s ") + name.substr(is_long ? 2 : 1, name.find('=') - (is_long ? 2 : 1));
        }
        if (word.kind == ValueKind::file) script += " -r -F";
        if (word.kind == ValueKind::any) script += " -x";
        if (word.kind == ValueKind::choices) script += " -x -a '" + joined(word.choices, " ") + "'";
        script += " -d " + quoted(word.description, "\\'") + "\n";
    }
    return script;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::vector<CompletedKey>& keys, const std::string& shell) {
    const std::string program = app.get_name();
    const std::vector<const CLI::App*> commands = app.get_subcommands({});
    std::vector<std::string> names;
    std::vector<Word> words;
    add_words(app, "", keys, words);
    for (const CLI::App* command : commands) {
        names.push_back(command->get_name());
        add_words(*command, command->get_name(), keys, words);
    }
    const std::string title = "# " + program + " --completion " + shell + "\n";
    if (shell == "fish") return title + fish_script(program, commands, names, words);
    const std::string function = "_" + program;
    std::string body = replaced(shell == "bash" ? kBash : kZsh, "FUNCTION", function);
    // A pattern that no word matches stands for "no subcommands".
    body = replaced(body, "-n 'COMMANDS'", names.empty() ? "-n ''" : "-n 'yes'");
    body = replaced(body, "COMMANDS", names.empty() ? "''" : joined(names, "|"));
    return title + shared_functions(function, names, words) + replaced(body, "NAME", program);
}

}  // namespace tessera::apps
