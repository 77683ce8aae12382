// Numbers that are not finite: which tensor, which step, and what happens then.
#include <cmath>
#include <functional>
#include <limits>

#include "apps/case_support.h"
#include "data/data_support.h"
#include "train/checkpoint_files.h"
#include "train/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::expect_refused;
using support::field_of;
using support::Outcome;

class NonFiniteNumbers : public support::CaseTest {
protected:
    fs::path run_of(const std::string& name, const std::string& dtype) const {
        return tiny(name, shard("sound", data::test::counting(4000, 61)),
                    "[checkpoint]\ninterval = 0\nkeep = 0\n[precision]\ndtype = \"" + dtype + "\"\n");
    }

    /// Writes a checkpoint anew, sound in itself, with what `visit` made of each tensor's numbers.
    void change(const std::string& name, std::int64_t step,
                const std::function<void(const std::string&, std::vector<float>&)>& visit) const {
        const auto reader = train::CheckpointReader::open(checkpoint(name, step).string());
        std::vector<std::vector<float>> values;
        std::vector<train::TensorSlice> slices;
        for (const train::TensorInfo& tensor : reader.tensors()) {
            std::vector<float>& numbers = values.emplace_back(static_cast<std::size_t>(tensor.shape.numel()));
            const auto whole = train::TensorBlock::whole(tensor.shape);
            reader.read(tensor.name, whole, core::DType::f32, reinterpret_cast<std::byte*>(numbers.data()));
            visit(tensor.name, numbers);
            slices.push_back({.name = tensor.name,
                              .block = whole,
                              .dtype = core::DType::f32,
                              .data = reinterpret_cast<const std::byte*>(numbers.data())});
        }
        const train::CheckpointState state = reader.state();
        train::write_checkpoint(
                {.root = (run_directory(name) / "checkpoints").string(), .state = state, .slices = slices});
    }

    /// Every tensor of a checkpoint, byte for byte, wherever in its file it stands.
    std::map<std::string, std::string> bytes_of(const std::string& name, std::int64_t step) const {
        std::map<std::string, std::string> result;
        for (const char* file : {"rank_00000.safetensors", "rank_00000_optimizer.safetensors"}) {
            const train::SafetensorsFile tensors((checkpoint(name, step) / file).string());
            for (const train::SafetensorsEntry& entry : tensors.entries()) {
                const auto bytes = tensors.data(entry);
                result[entry.name].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            }
        }
        return result;
    }

    /// Puts one NaN into the last of the second layer's weights, and says which tensor that is.
    std::string plant(const std::string& name, std::int64_t step) const {
        std::string planted;
        const auto reader = train::CheckpointReader::open(checkpoint(name, step).string());
        for (const train::TensorInfo& tensor : reader.tensors()) {
            if (tensor.name.rfind("model/layers.1.", 0) == 0 && tensor.shape.rank() == 2) planted = tensor.name;
        }
        change(name, step, [&](const std::string& tensor, std::vector<float>& numbers) {
            if (tensor == planted) numbers[numbers.size() / 2] = std::numeric_limits<float>::quiet_NaN();
        });
        return planted.substr(std::string("model/").size());
    }
};

TEST_F(NonFiniteNumbers, APlantedNanStopsTheFirstStepByName_NU_02) {
    for (const char* dtype : {"f32", "bf16"}) {
        const std::string name = std::string("planted_") + dtype;
        const fs::path path = run_of(name, dtype);
        train_well(path, {"--run.train_steps=4"});
        const std::string tensor = plant(name, 4);
        const auto before = support::contents_of(run_directory(name) / "checkpoints");
        const Outcome outcome = train(path);
        expect_refused(outcome, "gpt_train",
                       {"step 5: ", "not finite", "the value of " + tensor + " is not finite", "samples 16 to 19",
                        "the last checkpoint, of step 4, is intact"},
                       1);
        EXPECT_TRUE(before == support::contents_of(run_directory(name) / "checkpoints"));
        EXPECT_EQ(field_of(run_directory(name) / "metrics.jsonl", "loss").size(), 4U);
    }
}

TEST_F(NonFiniteNumbers, SkippedTheyAreCountedAndTouchNothing_NU_02) {
    for (const char* dtype : {"f32", "bf16"}) {
        const std::string name = std::string("skipped_") + dtype;
        const fs::path path = run_of(name, dtype);
        train_well(path, {"--run.train_steps=4"});
        const std::string tensor = plant(name, 4);
        const auto weights = bytes_of(name, 4);
        const Outcome outcome = train_well(path, {"--run.train_steps=8", "--run.non_finite=skip"});
        EXPECT_TRUE(bytes_of(name, 8) == weights);
        const fs::path metrics = run_directory(name) / "metrics.jsonl";
        const std::vector<std::string> counts = {"0", "0", "0", "0", "1", "2", "3", "4"};
        EXPECT_EQ(field_of(metrics, "nan_steps"), counts);
        EXPECT_EQ(field_of(metrics, "skipped_steps"), counts);
        EXPECT_NE(outcome.out.find("number of skipped iterations:   4 | number of nan iterations:   4 |"),
                  std::string::npos)
                << outcome.out;
        // The count goes on after a restart, and there is an end to it: three in a row, and the next.
        train_well(path, {"--run.train_steps=9", "--run.non_finite=skip"});
        EXPECT_EQ(field_of(metrics, "nan_steps").back(), "5");
        expect_refused(train(path, {"--run.train_steps=100", "--run.non_finite=skip", "--run.max_non_finite=3",
                                    "--checkpoint.resume=4"}),
                       "gpt_train", {"step 8: ", tensor, "the 3 steps before", "run.max_non_finite"}, 1);
        EXPECT_EQ(field_of(metrics, "nan_steps").back(), "3");
        EXPECT_TRUE(bytes_of(name, 4) == weights);
    }
}

TEST_F(NonFiniteNumbers, PersistentOverflowEndsAtTheFloorByName_NU_01) {
    const fs::path path = run_of("overflow", "f16");
    train_well(path, {"--run.train_steps=4", "--checkpoint.interval=1"});
    change("overflow", 4, [](const std::string& tensor, std::vector<float>& numbers) {
        if (tensor.rfind("model/", 0) != 0) return;
        for (float& number : numbers) number *= 1e4F;
    });
    const auto weights = bytes_of("overflow", 4);
    const Outcome outcome = train(path, {"--run.train_steps=500", "--checkpoint.interval=1"});
    // 65536 stands for two overflows, every further one halves it, and at 1 the next is the last: step 22.
    expect_refused(outcome, "gpt_train",
                   {"step 22: ", "the loss scale is at its floor of 1", "the gradient of ", "not finite",
                    "samples 84 to 87", "the last checkpoint, of step 21, is intact", "optimizer.lr"},
                   1);
    const std::vector<double> scales = numbers("overflow", "loss_scale");
    ASSERT_EQ(scales.size(), 21U);
    for (std::size_t i = 4; i < scales.size(); ++i) {
        EXPECT_EQ(scales[i], 65536 / std::pow(2, std::max(0.0, static_cast<double>(i) - 5))) << i;
    }
    EXPECT_EQ(field_of(run_directory("overflow") / "metrics.jsonl", "skipped_steps").back(), "17");
    for (const std::int64_t step : {5, 12, 21}) EXPECT_TRUE(bytes_of("overflow", step) == weights) << step;
    // The sound checkpoint before still trains.
    const Outcome again = train_well(path, {"--run.train_steps=6", "--checkpoint.resume=3"});
    EXPECT_NE(again.err.find("resumed after step 3 from "), std::string::npos) << again.err;
}

TEST_F(NonFiniteNumbers, AWeightBeyondTheRangeOfF16IsNamed_NU_01) {
    const fs::path path = run_of("beyond", "f16");
    train_well(path, {"--run.train_steps=2"});
    change("beyond", 2, [](const std::string& tensor, std::vector<float>& numbers) {
        if (tensor == "model/final_norm.weight") numbers[5] = 1e6F;
    });
    expect_refused(train(path, {"--run.train_steps=500"}), "gpt_train",
                   {"the loss scale is at its floor of 1", "the value of final_norm.weight is not finite",
                    "the last checkpoint, of step 2, is intact"},
                   1);
}

}  // namespace
}  // namespace tessera
