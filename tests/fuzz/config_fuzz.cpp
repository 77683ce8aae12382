// Any text as a config file, what follows each NUL as an override of the command line: refused with a ConfigError, or
// the config is valid and comes back the same from what is saved with a run.
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "fuzz/scratch_file.h"
#include "train/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tessera;
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    std::vector<std::string> parts;
    while (true) {
        const std::size_t at = rest.find('\0');
        parts.emplace_back(rest.substr(0, at));
        if (at == std::string_view::npos) break;
        rest.remove_prefix(at + 1);
    }
    const std::string text = parts.front();
    parts.erase(parts.begin());
    std::string saved;
    try {
        saved = train::to_toml(train::parse_config(text, "/tmp/fuzz.toml", parts));
    } catch (const core::ConfigError& error) {
        fuzz::require(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
        return 0;
    }
    fuzz::require(train::to_toml(train::parse_config(saved, "/tmp/fuzz.toml")) == saved,
                  "a saved config reads back the same");
    return 0;
}
