#include <CLI/CLI.hpp>

#include "commands.h"
#include "common/program.h"
#include "core/error.h"

namespace {

int parse_and_run(int argc, char** argv) {
    CLI::App app("Makes tokenizers and token shards for gpt_train.");
    tessera::apps::set_up_program(app, "gpt_data");
    app.require_subcommand(1);
    tessera::apps::add_tokenizer_command(app);
    tessera::apps::add_tokenize_command(app);
    tessera::apps::add_inspect_command(app);
    tessera::apps::add_verify_command(app);
    app.footer(
            "Examples:\n"
            "  gpt_data tokenizer corpus.txt --output t.model --vocab-size 16000\n"
            "  gpt_data tokenize corpus.txt --tokenizer t.model --output data/corpus\n"
            "  gpt_data inspect data/corpus_train_*.h5");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& end) {
        return tessera::apps::end_of_parsing(app, end);
    }
    return static_cast<int>(tessera::core::ExitCode::success);
}

}  // namespace

int main(int argc, char** argv) {
    return tessera::apps::run_program("gpt_data", [&] { return parse_and_run(argc, argv); });
}
