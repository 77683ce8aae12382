// The account of memory holds: the peak is the state and what the tape keeps, and the process has no more than that.
#include <sstream>

#include "apps/program_support.h"

namespace tessera {
namespace {

/// The second line of `gpt_bench step --csv` by column.
std::map<std::string, double> bench_figures(const std::vector<std::string>& overrides) {
    std::vector<std::string> arguments = {"step",
                                          std::string(TESSERA_SOURCE_DIR) + "/configs/gpt2_124m.toml",
                                          "--csv",
                                          "--steps",
                                          "2",
                                          "--warmup",
                                          "1",
                                          "--model.num_layers=6",
                                          "--model.hidden_size=256",
                                          "--model.num_attention_heads=4",
                                          "--model.vocab_size=8003",
                                          "--model.seq_length=128"};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    const support::Outcome outcome = support::run_program("gpt_bench", arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::istringstream lines(outcome.out);
    std::string names, values;
    std::getline(lines, names);
    std::getline(lines, values);
    std::istringstream name_cells(names), value_cells(values);
    std::map<std::string, double> figures;
    std::string name, value;
    while (std::getline(name_cells, name, ',') && std::getline(value_cells, value, ',')) {
        figures[name] = std::stod(value);
    }
    return figures;
}

TEST(MemoryAccount, ThePeakIsStateAndWhatTheTapeKeeps) {
    for (const char* dtype : {"f32", "bf16"}) {
        const auto figures = bench_figures({"--batch.global_batch_size=12", "--batch.micro_batch_size=12",
                                            std::string("--precision.dtype=") + dtype});
        const double expected = figures.at("state_mib") + figures.at("kept_mib");
        EXPECT_GT(figures.at("kept_mib"), 0.3 * figures.at("state_mib"));
        EXPECT_GE(figures.at("peak_mib"), expected) << dtype;
        // 16-bit operands are widened into buffers of their own.
        if (std::string(dtype) == "f32") {
            EXPECT_LE(figures.at("peak_mib"), 1.1 * expected);
        }
        EXPECT_GE(figures.at("resident_mib"), 0.95 * figures.at("peak_mib")) << dtype;
        EXPECT_LE(figures.at("resident_mib"), 1.05 * figures.at("peak_mib") + 64) << dtype;
    }
}

}  // namespace
}  // namespace tessera
