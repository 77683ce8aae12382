#include "train/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>

#include "core/error.h"
#include "temporary_folder.h"

namespace tessera::train {
namespace {

using core::CheckpointError;
using core::DType;
using testing::AllOf;
using testing::HasSubstr;

std::string file_of(const std::string& json, const std::string& data) {
    std::string text;
    for (std::size_t i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i) & 0xff);
    return text + json + data;
}

class Safetensors : public testing::Test {
protected:
    void SetUp() override {
        for (std::size_t i = 0; i < floats_.size(); ++i) floats_[i] = static_cast<float>(i) * 0.5F;
        for (std::size_t i = 0; i < halves_.size(); ++i) halves_[i] = static_cast<std::uint16_t>(i + 1);
    }
    std::vector<SafetensorsSource> sources() const {
        return {{"half", DType::bf16, {7}, reinterpret_cast<const std::byte*>(halves_.data())},
                {"matrix", DType::f32, {3, 5}, reinterpret_cast<const std::byte*>(floats_.data())},
                {"empty", DType::f16, {0, 4}, nullptr},
                {"scalar", DType::i64, {}, reinterpret_cast<const std::byte*>(&scalar_)},
                {"cube \"é\"", DType::i32, {1, 1, 2, 1}, reinterpret_cast<const std::byte*>(pair_.data())}};
    }
    std::string refusal(const std::string& bytes) const {
        write_bytes(path_, bytes);
        const std::string message = message_of<CheckpointError>([&] { SafetensorsFile file(path_); });
        EXPECT_THAT(message, HasSubstr(path_)) << bytes;
        return message;
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.path("a.safetensors");
    std::vector<float> floats_ = std::vector<float>(15);
    std::vector<std::uint16_t> halves_ = std::vector<std::uint16_t>(7);
    std::vector<std::int32_t> pair_ = {3, -4};
    std::int64_t scalar_ = -5;
};

TEST_F(Safetensors, RoundTrip) {
    const std::vector<SafetensorsSource> written = sources();
    const SafetensorsSummary summary = write_safetensors(path_, written, {{"format", "tessera"}});
    const SafetensorsFile file(path_);
    EXPECT_EQ(file.entries().size(), written.size());
    EXPECT_EQ(file.metadata().at("format"), "tessera");
    EXPECT_EQ(file.file_bytes(), summary.file_bytes);
    EXPECT_LE(summary.file_bytes, safetensors_bytes(written));
    EXPECT_EQ(file.header().size() % 8, 0U);
    for (const SafetensorsSource& source : written) {
        const SafetensorsEntry* entry = file.find(source.name);
        ASSERT_NE(entry, nullptr) << source.name;
        EXPECT_EQ(entry->dtype, source.dtype);
        EXPECT_TRUE(entry->shape == source.shape);
        EXPECT_EQ(entry->begin % core::size_of(entry->dtype), 0) << source.name;
        const auto bytes = file.data(*entry);
        ASSERT_EQ(static_cast<std::int64_t>(bytes.size()), source.bytes());
        if (!bytes.empty()) {
            EXPECT_EQ(std::memcmp(bytes.data(), source.data, bytes.size()), 0);
        }
    }
    EXPECT_EQ(file.find("absent"), nullptr);
    EXPECT_EQ(file.find("__metadata__"), nullptr);
}

TEST_F(Safetensors, NoTensorsAtAll) {
    write_safetensors(path_, {});
    EXPECT_TRUE(SafetensorsFile(path_).entries().empty());
}

TEST_F(Safetensors, TwoTensorsOfOneNameAreRefused) {
    std::vector<SafetensorsSource> twice = {sources()[0], sources()[0]};
    EXPECT_THAT(message_of<CheckpointError>([&] { write_safetensors(path_, twice); }),
                HasSubstr("two tensors are called 'half'"));
}

TEST_F(Safetensors, ReadsWhatOthersWrote) {
    write_bytes(path_,
                file_of(R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                        std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
    const SafetensorsFile file(path_);
    float values[2];
    std::memcpy(values, file.data(*file.find("x")).data(), 8);
    EXPECT_EQ(values[0], 1.0F);
    EXPECT_EQ(values[1], 2.0F);
}

TEST_F(Safetensors, EveryCutIsFound) {
    write_safetensors(path_, sources());
    const std::string whole = read_bytes(path_);
    for (std::size_t length = 0; length < whole.size(); ++length)
        EXPECT_NE(refusal(whole.substr(0, length)), "") << length;
    EXPECT_NE(refusal(whole + "x"), "");
}

TEST_F(Safetensors, DamagedHeadersAreRefusedNotFollowed) {
    const std::string data(8, 'd');
    const auto entry = [&](const std::string& text) { return refusal(file_of("{" + text + "}", data)); };
    EXPECT_THAT(refusal(std::string(8, '\xff') + "{}"), HasSubstr("its header claims 18446744073709551615 bytes"));
    EXPECT_THAT(refusal(file_of("[1]", "")), HasSubstr("not a JSON object"));
    EXPECT_THAT(refusal(file_of("{\"a\":", "")), HasSubstr("not a JSON object"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
                HasSubstr("tensor 'a' of shape [3] and dtype F32 has 12 bytes, but its offsets are [0, 8]"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), HasSubstr("offsets are [8, 0]"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})"), HasSubstr("its header describes"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), HasSubstr("begins at byte"));
    EXPECT_THAT(
            entry(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})"),
            HasSubstr("tensor 'b' begins at byte"));
    EXPECT_THAT(
            entry(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
            HasSubstr("two tensors of one name"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), HasSubstr("has -2 where a size"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), HasSubstr("where a size"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]})"),
                HasSubstr("overflows"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807]})"),
                HasSubstr("overflow"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]})"), HasSubstr("has dtype F64"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[1,1,1,1,2],"data_offsets":[0,8]})"),
                HasSubstr("more than 4 dimensions"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","data_offsets":[0,8]})"), HasSubstr("lacks dtype"));
    EXPECT_THAT(entry(R"("a":{"dtype":3,"shape":[2],"data_offsets":[0,8]})"), HasSubstr("wrong kind"));
    EXPECT_THAT(entry(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0]})"), HasSubstr("wrong kind"));
    EXPECT_THAT(entry(R"("a":3)"), HasSubstr("lacks dtype"));
}

TEST_F(Safetensors, AbsentFilesAndFoldersAreRefused) {
    EXPECT_THAT(message_of<CheckpointError>([&] { SafetensorsFile file(folder_.path("absent")); }),
                HasSubstr("cannot open"));
    EXPECT_THAT(message_of<CheckpointError>([&] { SafetensorsFile file(folder_.path()); }), HasSubstr("not a file"));
    EXPECT_THAT(refusal(""), HasSubstr("is empty"));
}

TEST_F(Safetensors, RandomDamageNeverCrashes) {
    write_safetensors(path_, sources());
    const std::string whole = read_bytes(path_);
    const std::size_t header = SafetensorsFile(path_).header().size();
    for (std::size_t at = 0; at < header; ++at) {
        for (const int bit : {0, 3, 6}) {
            std::string damaged = whole;
            damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
            write_bytes(path_, damaged);
            // A flip inside a name is another valid file; all others are refused. Neither may read out of bounds.
            try {
                const SafetensorsFile file(path_);
                for (const SafetensorsEntry& entry : file.entries()) EXPECT_LE(entry.end, file.file_bytes());
            } catch (const CheckpointError&) {
            }
        }
    }
}

}  // namespace
}  // namespace tessera::train
