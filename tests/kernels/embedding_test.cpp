#include "kernels/embedding.h"

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::values;
using Values = std::vector<double>;

constexpr std::int64_t kVocab = 11;
constexpr std::int64_t kPositions = 23;

/// 5 and 17 tokens of two samples (the second far beyond 2^32), then 3 of padding whose id is no id at all.
struct Batch {
    TokenMap map;
    Tensor tokens;
    explicit Batch(support::Device& device)
        : map(support::token_map(
                  device,
                  {{.sample = 3, .offset = 6, .length = 5}, {.sample = 9'000'000'001, .offset = 0, .length = 17}}, 3,
                  kPositions)) {
        std::vector<std::int32_t> ids;
        for (std::int32_t i = 0; i < 22; ++i) ids.push_back(i * i % 7);  // repeated ids
        ids.resize(25, -5);
        tokens = device.of(ids);
    }
    std::int64_t sample(std::int64_t token) const { return map.sample.data<std::int64_t>()[token]; }
    std::int64_t offset(std::int64_t token) const { return map.offset.data<std::int32_t>()[token]; }
    std::int64_t position(std::int64_t token) const { return map.position.data<std::int32_t>()[token]; }
    std::int64_t id(std::int64_t token) const { return tokens.data<std::int32_t>()[token]; }
};

struct EmbeddingCase {
    std::int64_t hidden;
    bool has_positions;
    float probability;
    std::int64_t feature_begin;
    std::string name(DType dtype) const {
        return fmt::format("hidden {} positions {} p={} from {} {}", hidden, has_positions, probability, feature_begin,
                           core::name_of(dtype));
    }
    Dropout dropout() const {
        return {.probability = probability,
                .seed = 0xFEDCBA9876543210ULL,
                .site = dropout_site(1, 0, 0),
                .feature_begin = feature_begin};
    }
};

std::vector<EmbeddingCase> cases() {
    std::vector<EmbeddingCase> all;
    for (const std::int64_t hidden : {1, 19, 76, 131, 200}) {
        for (const bool has_positions : {true, false}) {
            all.push_back({hidden, has_positions, 0.0F, 0});
            all.push_back({hidden, has_positions, 0.3F, 0});
            all.push_back({hidden, has_positions, 0.3F, 12});
        }
    }
    return all;
}

class EmbeddingTest : public support::KernelTest {};

TEST_F(EmbeddingTest, Forward) {
    const Batch batch(device);
    for (const EmbeddingCase& c : cases()) {
        for (const DType dtype : support::kFloatingDTypes) {
            const Tensor word = device.random({kVocab, c.hidden}, dtype);
            const Tensor positions = device.random({kPositions, c.hidden}, dtype);
            Tensor y = device.make({25, c.hidden}, dtype);
            embedding_forward(device.backend(), device.stream(),
                              {.tokens = batch.tokens,
                               .word = word,
                               .positions = c.has_positions ? &positions : nullptr,
                               .map = batch.map,
                               .dropout = c.dropout(),
                               .y = y});
            Values expected(static_cast<std::size_t>(25 * c.hidden));
            for (std::int64_t t = 0; t < 22; ++t) {
                for (std::int64_t i = 0; i < c.hidden; ++i) {
                    const double sum =
                            support::element(word, batch.id(t) * c.hidden + i) +
                            (c.has_positions ? support::element(positions, batch.position(t) * c.hidden + i) : 0.0);
                    expected[static_cast<std::size_t>(t * c.hidden + i)] =
                            sum *
                            support::dropout_factor(c.dropout(), batch.sample(t), batch.offset(t), c.feature_begin + i);
                }
            }
            expect_close(c.name(dtype), y, expected, {.terms = 3});
        }
    }
}

TEST_F(EmbeddingTest, BackwardAddsRowsOfRepeatedIds) {
    const Batch batch(device);
    for (const EmbeddingCase& c : cases()) {
        for (const DType dtype : support::kFloatingDTypes) {
            const Tensor dy = device.random({25, c.hidden}, dtype);
            Tensor dword = device.random({kVocab, c.hidden}, DType::f32);
            Tensor dpositions = device.random({kPositions, c.hidden}, DType::f32);
            Values words = values(dword);
            Values places = values(dpositions);
            for (std::int64_t t = 0; t < 22; ++t) {
                for (std::int64_t i = 0; i < c.hidden; ++i) {
                    const double d =
                            support::element(dy, t * c.hidden + i) *
                            support::dropout_factor(c.dropout(), batch.sample(t), batch.offset(t), c.feature_begin + i);
                    words[static_cast<std::size_t>(batch.id(t) * c.hidden + i)] += d;
                    if (c.has_positions) places[static_cast<std::size_t>(batch.position(t) * c.hidden + i)] += d;
                }
            }
            embedding_backward(device.backend(), device.stream(),
                               {.tokens = batch.tokens,
                                .map = batch.map,
                                .dropout = c.dropout(),
                                .dy = dy,
                                .dword = dword,
                                .dpositions = c.has_positions ? &dpositions : nullptr});
            expect_close("dword " + c.name(dtype), dword, words, {.terms = 24});
            expect_close("dpositions " + c.name(dtype), dpositions, places, {.terms = 24});
        }
    }
}

/// The message of the DataError that `call` throws.
template <typename Call>
std::string data_error(const Call& call) {
    try {
        call();
    } catch (const core::DataError& error) {
        return error.what();
    }
    return "no DataError";
}

TEST_F(EmbeddingTest, IdsAndPositionsOutsideTheTablesAreDataErrors) {
    const TokenMap map = support::token_map(device, {{.sample = 4, .offset = 2, .length = 3}}, 0, 8);
    const Tensor word = device.random({kVocab, 5}, DType::f32);
    const Tensor positions = device.random({2, 5}, DType::f32);
    Tensor y = device.make({3, 5}, DType::f32);
    auto run = [&](std::int32_t id, const Tensor* table) {
        const Tensor tokens = device.of(std::vector<std::int32_t>{0, id, 1});
        return data_error([&] {
            embedding_forward(device.backend(), device.stream(),
                              {.tokens = tokens, .word = word, .positions = table, .map = map, .dropout = {}, .y = y});
        });
    };
    EXPECT_EQ(run(11, nullptr), "token id 11 of sample 4 at offset 3 is outside the vocabulary of 11");
    EXPECT_EQ(run(-1, nullptr), "token id -1 of sample 4 at offset 3 is outside the vocabulary of 11");
    EXPECT_EQ(run(10, &positions), "position 2 of sample 4 is outside the 2 learned positions");
    EXPECT_EQ(run(10, nullptr), "no DataError");
}

}  // namespace
}  // namespace tessera::kernels
