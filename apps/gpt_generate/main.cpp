#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "common/program.h"
#include "common/whole_number.h"
#include "core/log.h"
#include "data/tokenizer.h"
#include "train/checkpoint.h"
#include "train/generation.h"
#include "train/settings.h"

namespace {

using namespace tessera;

struct Options {
    std::string source;
    std::string prompt;
    std::string prompt_file;
    std::string tokenizer;
    std::int64_t max_tokens = 200;
    std::int64_t samples = 1;
    bool ignore_end = false;
    bool no_cache = false;
    train::SamplingSettings sampling;
};

std::unique_ptr<train::CheckpointReader> open_checkpoint(const std::string& source) {
    namespace fs = std::filesystem;
    std::string path = source;
    if (fs::exists(fs::path(path) / "checkpoints")) path += "/checkpoints";
    const auto found = train::find_checkpoint(path, path);
    if (!found) core::raise<core::CheckpointError>("{} holds no checkpoint", source);
    return std::make_unique<train::CheckpointReader>(*found);
}

std::string find_tokenizer(const Options& options, const train::Config& config, const train::CheckpointReader& reader) {
    namespace fs = std::filesystem;
    if (!options.tokenizer.empty()) return options.tokenizer;
    // A run keeps a copy of its tokenizer: RUN/tokenizer.model beside RUN/checkpoints/step_N.
    for (const fs::path& folder : {fs::path(reader.path()).parent_path().parent_path(), fs::path(options.source)}) {
        if (fs::exists(folder / "tokenizer.model")) return (folder / "tokenizer.model").string();
    }
    if (!config.data.tokenizer.empty()) return config.data.tokenizer;
    core::raise<core::UsageError>("no tokenizer beside {}; name one with --tokenizer", reader.path());
}

std::string read_prompt(const Options& options) {
    if (options.prompt_file.empty()) return options.prompt;
    if (options.prompt_file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
    std::ifstream in(options.prompt_file, std::ios::binary);
    if (!in || std::filesystem::is_directory(options.prompt_file))
        core::raise<core::UsageError>("cannot read the prompt file {}", options.prompt_file);
    return {std::istreambuf_iterator<char>(in), {}};
}

int generate(const Options& options) {
    options.sampling.check();
    const auto reader = open_checkpoint(options.source);
    train::Config config = train::parse_config(reader->state().config_toml, reader->path() + "/index.json");
    const data::Tokenizer tokenizer = data::Tokenizer::load(find_tokenizer(options, config, *reader));
    train::EngineSettings settings = train::engine_settings(config);
    if (tokenizer.vocab_size() > settings.model.vocab_size) {
        core::raise<core::UsageError>(
                "the tokenizer has {} pieces, but the model's vocabulary holds {}; this is not its tokenizer",
                tokenizer.vocab_size(), settings.model.vocab_size);
    }
    settings.state = zero::StateKind::values_only;
    train::Engine engine(settings);
    train::load_engine(engine, *reader, train::LoadParts::weights_only);

    train::GenerationRequest request;
    const std::string prompt = read_prompt(options);
    request.prompt = tokenizer.encode(prompt);
    // An empty prompt starts where a document starts: after the end of the one before.
    if (request.prompt.empty()) request.prompt.push_back(tokenizer.eod_id());
    request.max_new_tokens = options.max_tokens;
    if (!options.ignore_end) request.stop_ids.push_back(tokenizer.eod_id());
    request.sampling = options.sampling;
    request.cache = options.no_cache ? train::CacheUse::recompute : train::CacheUse::keep;
    train::check_request(engine, request);
    const std::int64_t room = engine.model().config().seq_length - static_cast<std::int64_t>(request.prompt.size());
    bool filled = false;
    for (std::int64_t sample = 0; sample < options.samples; ++sample) {
        data::StreamDecoder decoder(tokenizer, data::DecodeFrom::continuation);
        std::fwrite(prompt.data(), 1, prompt.size(), stdout);
        const std::vector<std::int32_t> generated = train::generate(engine, request, [&](std::int32_t id) {
            const std::string piece = decoder.push(id);
            std::fwrite(piece.data(), 1, piece.size(), stdout);
            std::fflush(stdout);
        });
        filled = filled || (room < options.max_tokens && static_cast<std::int64_t>(generated.size()) == room);
        const std::string rest = decoder.finish();
        std::fwrite(rest.data(), 1, rest.size(), stdout);
        std::fputs(sample + 1 < options.samples ? "\n\n" : "\n", stdout);
        ++request.sampling.seed;
    }
    if (filled) {
        core::log_info(
                fmt::format("the context of {} tokens is full: {} of the {} tokens asked for fit after the prompt",
                            engine.model().config().seq_length, room, options.max_tokens));
    }
    return 0;
}

int run(int argc, char** argv) {
    CLI::App app("Generates text from a run or a checkpoint.");
    apps::set_up_program(app, "gpt_generate");
    app.footer(
            "Examples:\n"
            "  gpt_generate runs/quickstart --prompt 'Water'\n"
            "  gpt_generate runs/quickstart --prompt-file start.txt --top-p 0.9\n"
            "Filters apply in the order temperature, top-k, top-p.");
    Options options;
    app.add_option("SOURCE", options.source, "a run's folder, a checkpoints folder or one checkpoint")->required();
    app.add_option("--prompt", options.prompt, "the text to continue (empty: a new document)");
    app.add_option("--prompt-file", options.prompt_file, "read the prompt from a file, - is stdin");
    app.add_option("--tokenizer", options.tokenizer, "SentencePiece model (default: the run's own)");
    app.add_option("--max-tokens", options.max_tokens, "most new tokens")
            ->capture_default_str()
            ->check(apps::whole_number<std::int64_t>(0));
    app.add_option("--samples", options.samples, "how many texts, seeds counting up")
            ->capture_default_str()
            ->check(apps::whole_number<std::int64_t>(1));
    app.add_option("--temperature", options.sampling.temperature, "0 = greedy")->capture_default_str();
    app.add_option("--top-k", options.sampling.top_k, "draw from the k most probable, 0 = all")
            ->capture_default_str()
            ->check(apps::whole_number<std::int64_t>(0));
    app.add_option("--top-p", options.sampling.top_p, "draw from the smallest set of this probability")
            ->capture_default_str();
    app.add_option("--seed", options.sampling.seed, "of the draws")
            ->capture_default_str()
            ->check(apps::whole_number<std::uint64_t>(0));
    app.add_flag("--ignore-end", options.ignore_end, "go on after the end of a document");
    app.add_flag("--no-cache", options.no_cache, "no cache of keys and values (slow; to compare)");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return apps::end_of_parsing(app, error);
    }
    return generate(options);
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_program("gpt_generate", [&] { return run(argc, argv); });
}
