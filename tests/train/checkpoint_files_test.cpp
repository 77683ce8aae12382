#include "train/checkpoint_files.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "checkpoint_example.h"
#include "core/error.h"
#include "temporary_folder.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using core::CheckpointError;
using core::DType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointFiles : public testing::Test {
protected:
    std::vector<float> read(const CheckpointReader& reader, const std::string& name, const TensorBlock& block) const {
        std::vector<float> values(static_cast<std::size_t>(block.numel()), -1.0F);
        reader.read(name, block, DType::f32, reinterpret_cast<std::byte*>(values.data()));
        return values;
    }

    TemporaryFolder folder_;
    std::string root_ = folder_.path("checkpoints");
};

TEST_F(CheckpointFiles, StateAndTensorsReadBack) {
    const CheckpointExample example(120);
    const std::string path = example.write(root_);
    EXPECT_EQ(path, root_ + "/step_00000120");
    EXPECT_EQ(read_bytes(root_ + "/latest"), "step_00000120\n");
    EXPECT_TRUE(fs::exists(path + "/rank_00000.safetensors"));
    EXPECT_TRUE(fs::exists(path + "/rank_00000_optimizer.safetensors"));
    const CheckpointReader reader = CheckpointReader::open(path);
    const CheckpointState& state = reader.state();
    EXPECT_EQ(state.step, 120);
    EXPECT_EQ(state.consumed_samples, 480);
    EXPECT_EQ(state.consumed_tokens, 7680);
    EXPECT_EQ(state.updates, 117);
    EXPECT_EQ(state.skipped_steps, 3);
    EXPECT_EQ(state.loss_scale, 0x1p40);
    EXPECT_EQ(state.loss_scale_clean_steps, 7);
    EXPECT_EQ(state.loss_scale_hysteresis_left, 1);
    EXPECT_EQ(state.config_toml, example.state.config_toml);
    EXPECT_EQ(state.program_version, "0.1.0");
    EXPECT_EQ(state.extras.at("gemm"), "heuristic \"7\"");
    ASSERT_EQ(reader.tensors().size(), 4U);
    EXPECT_EQ(reader.tensors()[0].name, "model/bias");
    EXPECT_EQ(reader.info("model/weight").dtype, DType::f32);
    EXPECT_FALSE(reader.has("model/absent"));
    EXPECT_EQ(read(reader, "model/weight", TensorBlock::whole({7, 5})), example.weight);
    EXPECT_EQ(read(reader, "optimizer/exp_avg/weight", TensorBlock::whole({7, 5})), example.weight);
    std::int64_t counter = 0;
    reader.read("model/counter", TensorBlock::whole({}), DType::i64, reinterpret_cast<std::byte*>(&counter));
    EXPECT_EQ(counter, 42);
    reader.verify();
}

TEST_F(CheckpointFiles, AnyBlockIsAssembledFromAnySlices) {
    // [3, 5, 7] cut into 2 x 2 x 2 uneven blocks, read back in every block of every range.
    const core::Shape shape{3, 5, 7};
    std::vector<float> all(105);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
    std::vector<TensorSlice> slices;
    std::vector<std::unique_ptr<std::vector<float>>> storage;
    const std::array<std::array<std::int64_t, 3>, 3> cuts = {{{0, 2, 3}, {0, 1, 5}, {0, 4, 7}}};
    const auto part_of = [&](const TensorBlock& block) {
        std::vector<float> values;
        for (std::int64_t i = block.ranges[0].begin; i < block.ranges[0].end; ++i)
            for (std::int64_t j = block.ranges[1].begin; j < block.ranges[1].end; ++j)
                for (std::int64_t k = block.ranges[2].begin; k < block.ranges[2].end; ++k)
                    values.push_back(all[static_cast<std::size_t>((i * 5 + j) * 7 + k)]);
        return values;
    };
    for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t j = 0; j < 2; ++j) {
            for (std::size_t k = 0; k < 2; ++k) {
                TensorBlock block{
                        shape,
                        {{{cuts[0][i], cuts[0][i + 1]}, {cuts[1][j], cuts[1][j + 1]}, {cuts[2][k], cuts[2][k + 1]}}}};
                storage.push_back(std::make_unique<std::vector<float>>(part_of(block)));
                slices.push_back(
                        {"model/cube", block, DType::f32, reinterpret_cast<const std::byte*>(storage.back()->data())});
            }
        }
    }
    CheckpointState state;
    const CheckpointReader reader =
            CheckpointReader::open(write_checkpoint({.root = root_, .state = state, .slices = slices}));
    for (std::int64_t a = 0; a < 3; ++a) {
        for (std::int64_t b = 0; b < 5; ++b) {
            for (std::int64_t c = 0; c < 7; ++c) {
                for (const std::int64_t wide : {0, 1, 9}) {
                    const TensorBlock block{shape,
                                            {{{a, std::min<std::int64_t>(a + wide, 3)},
                                              {b, std::min<std::int64_t>(b + wide, 5)},
                                              {c, std::min<std::int64_t>(c + wide, 7)}}}};
                    ASSERT_EQ(read(reader, "model/cube", block), part_of(block)) << block.to_string();
                }
            }
        }
    }
}

TEST_F(CheckpointFiles, DTypesAreConverted) {
    const std::vector<float> values = {1.0F, -2.5F, 1.00390625F, 70000.0F, 6e-8F};
    CheckpointState state;
    const TensorSlice slice{"model/x", TensorBlock::whole({5}), DType::f32,
                            reinterpret_cast<const std::byte*>(values.data())};
    const CheckpointReader reader =
            CheckpointReader::open(write_checkpoint({.root = root_, .state = state, .slices = std::span(&slice, 1)}));
    std::vector<core::bf16> brains(5);
    std::vector<core::f16> halves(5);
    reader.read("model/x", TensorBlock::whole({5}), DType::bf16, reinterpret_cast<std::byte*>(brains.data()));
    reader.read("model/x", TensorBlock::whole({5}), DType::f16, reinterpret_cast<std::byte*>(halves.data()));
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(brains[i].bits, core::to_bf16(values[i]).bits);
        EXPECT_EQ(halves[i].bits, core::to_f16(values[i]).bits);
    }
    state.step = 1;
    const TensorSlice narrow{"model/x", TensorBlock::whole({5}), DType::f16,
                             reinterpret_cast<const std::byte*>(halves.data())};
    const CheckpointReader again =
            CheckpointReader::open(write_checkpoint({.root = root_, .state = state, .slices = std::span(&narrow, 1)}));
    const std::vector<float> widened = read(again, "model/x", TensorBlock::whole({5}));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(widened[i], core::to_f32(halves[i]));
    EXPECT_THAT(
            message_of<CheckpointError>([&] { again.read("model/x", TensorBlock::whole({5}), DType::i32, nullptr); }),
            HasSubstr("is f16 in"));
}

TEST_F(CheckpointFiles, WrongReadsAreRefused) {
    const CheckpointExample example(1);
    const CheckpointReader reader = CheckpointReader::open(example.write(root_));
    const auto refusal = [&](const std::string& name, const TensorBlock& block) {
        return message_of<CheckpointError>([&] { reader.read(name, block, DType::f32, nullptr); });
    };
    EXPECT_THAT(refusal("model/absent", TensorBlock::whole({1})), HasSubstr("has no tensor 'model/absent'"));
    EXPECT_THAT(refusal("model/weight", TensorBlock::whole({7, 6})),
                AllOf(HasSubstr("[7, 5]"), HasSubstr("[7, 6] is expected")));
    EXPECT_THAT(refusal("model/weight", TensorBlock::rows({7, 5}, 3, 8)), HasSubstr("lies outside"));
}

TEST_F(CheckpointFiles, SlicesMustCoverEachElementOnce) {
    const std::vector<float> values(10);
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    CheckpointState state;
    const auto refusal = [&](std::vector<TensorSlice> slices) {
        return message_of<CheckpointError>(
                [&] { write_checkpoint({.root = root_, .state = state, .slices = slices}); });
    };
    const core::Shape shape{4, 2};
    const TensorSlice first{"x", TensorBlock::rows(shape, 0, 2), DType::f32, data};
    const TensorSlice second{"x", TensorBlock::rows(shape, 2, 4), DType::f32, data};
    const TensorSlice none{"x", TensorBlock::rows(shape, 4, 4), DType::f32, nullptr};
    EXPECT_EQ(refusal({first, second, none, none}), "");
    EXPECT_THAT(refusal({first}), HasSubstr("tensor 'x' is incomplete: its slices hold 4 of 8 elements"));
    EXPECT_THAT(refusal({first, first}), HasSubstr("overlap"));
    EXPECT_THAT(refusal({first, {"x", TensorBlock::rows(shape, 1, 4), DType::f32, data}}),
                HasSubstr("[0:2, 0:2] and [1:4, 0:2]"));
    EXPECT_THAT(refusal({first, {"x", TensorBlock::rows(shape, 2, 5), DType::f32, data}}), HasSubstr("lies outside"));
    EXPECT_THAT(refusal({first, {"x", TensorBlock::rows(shape, 2, 4), DType::bf16, data}}),
                HasSubstr("disagree: f32 [4, 2] and bf16"));
    EXPECT_THAT(refusal({first, {"x", TensorBlock::rows({4, 3}, 2, 4), DType::f32, data}}), HasSubstr("disagree"));
}

TEST_F(CheckpointFiles, CK12_EveryMismatchIsListed) {
    const CheckpointReader reader = CheckpointReader::open(CheckpointExample(1).write(root_));
    std::vector<TensorInfo> expected = reader.tensors();
    compare_tensors(reader, expected);
    std::erase_if(expected, [](const TensorInfo& tensor) { return tensor.name.rfind("optimizer/", 0) == 0; });
    compare_tensors(reader, expected, "model/");
    for (TensorInfo& tensor : expected) {
        if (tensor.name == "model/weight") tensor.shape = {7, 48};
        if (tensor.name == "model/bias") tensor.name = "model/head";
    }
    const std::string message = message_of<CheckpointError>([&] { compare_tensors(reader, expected, "model/"); });
    EXPECT_THAT(message, AllOf(HasSubstr("'model/weight' is expected as [7, 48] but found as [7, 5]"),
                               HasSubstr("'model/head' [6] is expected but missing"),
                               HasSubstr("'model/bias' [6] is not part of the model")));
    for (int i = 0; i < 20; ++i) expected.push_back({"model/extra" + std::to_string(i), {1}, DType::f32});
    EXPECT_THAT(message_of<CheckpointError>([&] { compare_tensors(reader, expected, "model/"); }),
                HasSubstr("; and 15 more"));
}

TEST_F(CheckpointFiles, CK01_CK03_EveryCutAndAbsentFileIsFound) {
    const CheckpointExample example(1);
    const std::string path = example.write(root_);
    for (const char* name : {"index.json", "rank_00000.safetensors", "rank_00000_optimizer.safetensors"}) {
        const std::string file = path + "/" + name;
        const std::string whole = read_bytes(file);
        for (const std::size_t length :
             {std::size_t{0}, std::size_t{1}, whole.size() / 3, whole.size() / 2, whole.size() - 2}) {
            write_bytes(file, whole.substr(0, length));
            EXPECT_THAT(message_of<CheckpointError>([&] { CheckpointReader::open(path); }), HasSubstr(file)) << length;
        }
        fs::remove(file);
        EXPECT_THAT(message_of<CheckpointError>([&] { CheckpointReader::open(path); }), HasSubstr(name));
        write_bytes(file, whole);
        CheckpointReader::open(path).verify();
    }
}

TEST_F(CheckpointFiles, CK03_EveryFlippedBitIsFound) {
    const std::string path = CheckpointExample(1).write(root_);
    for (const char* name : {"index.json", "rank_00000.safetensors", "rank_00000_optimizer.safetensors"}) {
        const std::string file = path + "/" + name;
        const std::string whole = read_bytes(file);
        for (std::size_t at = 0; at < whole.size(); at += 3) {
            // Between its tokens JSON has blanks that carry nothing.
            if (whole[at] == ' ' || whole[at] == '\n') continue;
            std::string damaged = whole;
            damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 7)));
            write_bytes(file, damaged);
            EXPECT_NE(message_of<CheckpointError>([&] { CheckpointReader::open(path).verify(); }), "")
                    << name << " byte " << at;
        }
        write_bytes(file, whole);
    }
    CheckpointReader::open(path).verify();
}

TEST_F(CheckpointFiles, AFlippedBitIsFoundOnRead) {
    const std::string path = CheckpointExample(1).write(root_);
    const std::string file = path + "/rank_00000.safetensors";
    std::string damaged = read_bytes(file);
    damaged.back() = static_cast<char>(damaged.back() ^ 1);
    write_bytes(file, damaged);
    const CheckpointReader reader = CheckpointReader::open(path);
    std::string messages;
    for (const TensorInfo& tensor : reader.tensors()) {
        messages += message_of<CheckpointError>([&] {
            std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.shape.numel() * core::size_of(tensor.dtype)));
            reader.read(tensor.name, TensorBlock::whole(tensor.shape), tensor.dtype, bytes.data());
        });
    }
    EXPECT_THAT(messages,
                AllOf(HasSubstr("rank_00000.safetensors' is damaged: tensor 'model/"), HasSubstr("index.json says")));
}

TEST_F(CheckpointFiles, AnotherFormatVersionIsRefused) {
    const std::string path = CheckpointExample(1).write(root_);
    std::string text = read_bytes(path + "/index.json");
    const std::string version = "\"format_version\": 1";
    ASSERT_NE(text.find(version), std::string::npos);
    write_bytes(path + "/index.json", text.replace(text.find(version), version.size(), "\"format_version\": 9"));
    EXPECT_THAT(message_of<CheckpointError>([&] { CheckpointReader::open(path); }),
                HasSubstr("has format version 9; this program reads version 1"));
    write_bytes(path + "/index.json", "{\"a\": 1}");
    EXPECT_THAT(message_of<CheckpointError>([&] { CheckpointReader::open(path); }),
                HasSubstr("not the index of a Tessera checkpoint"));
}

TEST(TensorBlock, ShapesAndText) {
    const TensorBlock block = TensorBlock::rows({4, 6}, 1, 3);
    EXPECT_EQ(block.to_string(), "[1:3, 0:6]");
    EXPECT_EQ(block.numel(), 12);
    EXPECT_TRUE(block.local_shape() == core::Shape({2, 6}));
    EXPECT_EQ(TensorBlock::whole({}).numel(), 1);
}

}  // namespace
}  // namespace tessera::train
