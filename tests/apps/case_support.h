#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/program_support.h"

namespace tessera::support {

/// What the system says a program used.
struct Usage {
    int exit_code = -1;
    std::int64_t peak_resident_bytes = 0;
    std::int64_t read_bytes = 0;  ///< through read calls, from the disk or from its cache
    std::int64_t read_calls = 0;
    std::string log;  ///< stdout and stderr
};

/// Runs build/apps/PROGRAM to its end.
Usage measure_program(const std::string& program, const std::vector<std::string>& arguments,
                      const std::filesystem::path& log);

/// Runs on shards whose tokens a test knows, without a tokenizer.
class CaseTest : public ProgramTest {
protected:
    // No tokenizer, no text: nothing of these tests needs them.
    static void SetUpTestSuite();

    /// A shard of these tokens.
    std::string shard(const std::string& name, const std::vector<std::int64_t>& tokens,
                      const std::vector<std::int64_t>& document_offsets = {}) const;
    /// The config of a run of twelve steps on a shard: two layers, hidden 32, four heads, window 16, vocabulary 64, no
    /// dropout, batch 4. `lines` may hold more sections; keys are changed by overrides.
    std::filesystem::path tiny(const std::string& name, const std::string& shard_path,
                               const std::string& lines = "") const;
    /// Every tensor of a file of a checkpoint.
    std::map<std::string, std::vector<float>> values(const std::string& name, std::int64_t step,
                                                     const std::string& file = "rank_00000.safetensors") const;
    std::vector<double> numbers(const std::string& name, const std::string& key) const;
};

}  // namespace tessera::support
