#include "common/program.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "common/completion.h"
#include "common/help_text.h"
#include "core/error.h"

namespace tessera::apps {
namespace {

/// What neither the program nor the chosen subcommand knows.
std::vector<std::string> unknown_arguments(const CLI::App& app) {
    std::vector<std::string> unknown = app.get_allow_extras() ? std::vector<std::string>() : app.remaining();
    for (const CLI::App* command : app.get_subcommands()) {
        const std::vector<std::string> more = unknown_arguments(*command);
        unknown.insert(unknown.end(), more.begin(), more.end());
    }
    return unknown;
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) {
    try {
        return body();
    } catch (const core::Error& error) {
        std::fprintf(stderr, "%s: error: %s\n", name.c_str(), error.what());
        return static_cast<int>(error.exit_code());
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "%s: error: out of memory\n", name.c_str());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: error: %s\n", name.c_str(), error.what());
    }
    return static_cast<int>(core::ExitCode::run_failure);
}

void die_of_signal(int signal) {
    ::signal(signal, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    ::raise(signal);
    ::_exit(128 + signal);
}

int end_of_parsing(const CLI::App& app, const CLI::ParseError& end) {
    if (end.get_exit_code() == 0) return app.exit(end);
    // CLI11 looks for what is required before it looks at what it does not know, although a mistyped option is often
    // the reason.
    const std::vector<std::string> unknown = unknown_arguments(app);
    if (dynamic_cast<const CLI::RequiredError*>(&end) != nullptr && !unknown.empty()) {
        core::raise<core::UsageError>("unknown argument '{}' (--help lists the options)", unknown.front());
    }
    core::raise<core::UsageError>("{} (--help lists the options)", end.what());
}

void set_up_program(CLI::App& app, const std::string& name, std::vector<CompletedKey> keys) {
    app.name(name);
    // CLI11 puts the path the program was called by before a subcommand's name.
    app.formatter_fn([name](const CLI::App* shown, const std::string&, CLI::AppFormatMode) {
        return help_text(*shown, shown->get_parent() != nullptr ? name + " " + shown->get_name() : name);
    });
    app.get_help_ptr()->description("this text");
    app.set_version_flag("--version", name + " (Tessera) " + TESSERA_VERSION, "the program's version");
    app.add_option_function<std::string>(
               "--completion",
               [&app, keys = std::move(keys)](const std::string& shell) {
                   std::printf("%s", completion_script(app, keys, shell).c_str());
                   throw CLI::Success();
               },
               "for bash, zsh or fish: source <(" + name + " ...)")
            ->check(CLI::IsMember(kShells));
}

}  // namespace tessera::apps
