#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "commands.h"
#include "core/error.h"

namespace {

int parse_and_run(int argc, char** argv) {
    CLI::App app("gpt_data: tokenizers and token shards for gpt_train");
    app.set_version_flag("--version", "gpt_data " TESSERA_VERSION);
    app.require_subcommand(1);
    tessera::apps::add_tokenizer_command(app);
    tessera::apps::add_tokenize_command(app);
    tessera::apps::add_inspect_command(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {
        return app.exit(success);
    } catch (const CLI::RequiredError& error) {
        const std::string_view first = argc > 1 ? argv[1] : "";
        if (app.get_subcommands().empty() && !first.empty() && !first.starts_with('-')) {
            tessera::core::raise<tessera::core::UsageError>(
                    "unknown subcommand '{}'; known are tokenizer, tokenize and inspect", first);
        }
        tessera::core::raise<tessera::core::UsageError>("{} (--help lists the options)", error.what());
    } catch (const CLI::ParseError& error) {
        tessera::core::raise<tessera::core::UsageError>("{} (--help lists the options)", error.what());
    }
    return static_cast<int>(tessera::core::ExitCode::success);
}

}  // namespace

int main(int argc, char** argv) try { return parse_and_run(argc, argv); } catch (const tessera::core::Error& error) {
    fmt::print(stderr, "gpt_data: error: {}\n", error.what());
    return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
    fmt::print(stderr, "gpt_data: error: {}\n", error.what());
    return static_cast<int>(tessera::core::ExitCode::run_failure);
}
