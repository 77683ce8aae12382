#include "apps/case_support.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <fstream>

#include "data/data_support.h"
#include "train/safetensors.h"

namespace tessera::support {

namespace fs = std::filesystem;

Usage measure_program(const std::string& program, const std::vector<std::string>& arguments, const fs::path& log) {
    const int process = start_program(program, arguments, log);
    siginfo_t state{};
    waitid(P_PID, static_cast<id_t>(process), &state, WEXITED | WNOWAIT);
    Usage usage;
    // The counters of a process outlive it until somebody waits for it.
    std::ifstream counters("/proc/" + std::to_string(process) + "/io");
    std::string name;
    for (std::int64_t value = 0; counters >> name >> value;) {
        if (name == "rchar:") usage.read_bytes = value;
        if (name == "syscr:") usage.read_calls = value;
    }
    int status = 0;
    rusage resources{};
    wait4(process, &status, 0, &resources);
    usage.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    usage.peak_resident_bytes = static_cast<std::int64_t>(resources.ru_maxrss) * 1024;
    usage.log = read_file(log);
    return usage;
}

void CaseTest::SetUpTestSuite() {
    make_folder();
}

std::string CaseTest::shard(const std::string& name, const std::vector<std::int64_t>& tokens,
                            const std::vector<std::int64_t>& document_offsets) const {
    const std::string path = (folder / (name + ".h5")).string();
    data::test::write_foreign(path, tokens, {.document_offsets = document_offsets});
    return path;
}

fs::path CaseTest::tiny(const std::string& name, const std::string& shard_path, const std::string& lines) const {
    const fs::path path = folder / (name + ".toml");
    write_file(path, "[run]\ndirectory = \"runs/" + name +
                             "\"\ntrain_steps = 12\n"
                             "[model]\nnum_layers = 2\nhidden_size = 32\nnum_attention_heads = 4\nseq_length = 16\n"
                             "vocab_size = 64\n[data]\ntrain = '" +
                             shard_path +
                             "'\n[batch]\nglobal_batch_size = 4\n[optimizer]\nlr = 3e-3\n[log]\nloss_curve = false\n" +
                             lines);
    return path;
}

std::map<std::string, std::vector<float>> CaseTest::values(const std::string& name, std::int64_t step,
                                                           const std::string& file) const {
    const train::SafetensorsFile tensors((checkpoint(name, step) / file).string());
    std::map<std::string, std::vector<float>> result;
    for (const train::SafetensorsEntry& entry : tensors.entries()) {
        const auto bytes = tensors.data(entry);
        const auto* numbers = reinterpret_cast<const float*>(bytes.data());
        result[entry.name].assign(numbers, numbers + bytes.size() / sizeof(float));
    }
    return result;
}

std::vector<double> CaseTest::numbers(const std::string& name, const std::string& key) const {
    std::vector<double> result;
    for (const std::string& text : field_of(run_directory(name) / "metrics.jsonl", key)) {
        result.push_back(std::stod(text));
    }
    return result;
}

}  // namespace tessera::support
