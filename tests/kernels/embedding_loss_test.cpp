#include <gtest/gtest.h>

#include "kernels/embedding.h"
#include "kernels/loss.h"
#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using support::Doubles;
using support::TestDevice;

class Embedding : public testing::TestWithParam<std::tuple<DType, float, bool>> {};

TEST_P(Embedding, ForwardAndBackwardMatchPlainLoops) {
    const auto [dtype, probability, with_positions] = GetParam();
    TestDevice device;
    const std::int64_t hidden = 19;
    const std::int64_t vocab = 7;
    const TokenMap map = device.map({5, 4}, 3);
    const std::vector<std::int32_t> ids = {3, 3, 0, 6, 3, 1, 3, 0, 0, 2, 2, 2};
    const Dropout dropout{.probability = probability, .seed = 3, .site = 40, .feature_begin = 0};
    const Doubles word = support::pattern(vocab * hidden, 1);
    const Doubles position = support::pattern(5 * hidden, 2);
    const Doubles dy = support::pattern(12 * hidden, 3);
    core::Tensor tokens = device.ids(ids);
    core::Tensor wordt = device.tensor({vocab, hidden}, word, dtype);
    core::Tensor positiont = device.tensor({5, hidden}, position, dtype);
    core::Tensor y = device.tensor({12, hidden}, dtype);
    embedding_forward(*device.backend, device.stream,
                      {.tokens = tokens,
                       .word = wordt,
                       .positions = with_positions ? &positiont : nullptr,
                       .map = map,
                       .dropout = dropout,
                       .y = y});
    Doubles expected(12 * 19, 0.0);
    Doubles dword(7 * 19, 0.5);
    Doubles dposition(5 * 19, 0.25);
    for (std::int64_t token = 0; token < 9; ++token) {
        const std::int32_t offset = static_cast<std::int32_t>(token < 5 ? token : token - 5);
        for (std::int64_t i = 0; i < hidden; ++i) {
            const double keep = support::keep_scale(dropout, i, token < 5 ? 100 : 101, offset);
            const auto at = static_cast<std::size_t>(token * hidden + i);
            const auto w = static_cast<std::size_t>(ids[static_cast<std::size_t>(token)] * hidden + i);
            const auto p = static_cast<std::size_t>(offset * hidden + i);
            expected[at] = (word[w] + (with_positions ? position[p] : 0.0)) * keep;
            dword[w] += dy[at] * keep;
            dposition[p] += dy[at] * keep;
        }
    }
    support::expect_close(support::doubles(y), expected, 2 * support::storage_epsilon(dtype), "y");
    core::Tensor dyt = device.tensor({12, hidden}, dy, dtype);
    core::Tensor dwordt = device.tensor({vocab, hidden}, Doubles(7 * 19, 0.5));
    core::Tensor dpositiont = device.tensor({5, hidden}, Doubles(5 * 19, 0.25));
    embedding_backward(*device.backend, device.stream,
                       {.tokens = tokens,
                        .map = map,
                        .dropout = dropout,
                        .dy = dyt,
                        .dword = dwordt,
                        .dpositions = with_positions ? &dpositiont : nullptr});
    support::expect_close(support::doubles(dwordt), dword, 1e-6, "dword");
    if (with_positions) support::expect_close(support::doubles(dpositiont), dposition, 1e-6, "dpositions");
    device.check_guards();
}

INSTANTIATE_TEST_SUITE_P(Cases, Embedding,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values(0.0F, 0.4F), testing::Bool()));

TEST(EmbeddingChecks, RefuseIdsOutsideTheVocabulary_DA_06) {
    TestDevice device;
    const TokenMap map = device.map({3});
    core::Tensor word = device.zeros({7, 4});
    core::Tensor y = device.tensor({3, 4});
    for (const std::int32_t bad : {7, -1}) {
        core::Tensor tokens = device.ids({1, bad, 2});
        try {
            embedding_forward(*device.backend, device.stream,
                              {.tokens = tokens, .word = word, .map = map, .dropout = {}, .y = y});
            FAIL() << "accepted";
        } catch (const core::DataError& error) {
            EXPECT_EQ(std::string(error.what()),
                      "token id " + std::to_string(bad) + " of sample 100 at offset 1 is outside the vocabulary of 7");
        }
    }
}

double cross_entropy(const Doubles& logits, const std::vector<std::int32_t>& targets, std::size_t columns,
                     std::size_t vocab, std::vector<double>* each = nullptr) {
    double total = 0;
    for (std::size_t t = 0; t < targets.size(); ++t) {
        double loss = 0;
        if (targets[t] >= 0) {
            double sum = 0;
            for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(logits[t * columns + i]);
            loss = std::log(sum) - logits[t * columns + static_cast<std::size_t>(targets[t])];
        }
        total += loss;
        if (each) each->push_back(loss);
    }
    return total;
}

class Loss : public testing::TestWithParam<std::tuple<DType, int>> {};

TEST_P(Loss, MatchesTheSoftmaxOverTheTrueVocabulary) {
    const auto [dtype, vocab] = GetParam();
    TestDevice device;
    const std::int64_t columns = vocab + 5;
    const std::vector<std::int32_t> targets = {0, vocab - 1, -1, vocab / 2, 0};
    const Doubles logits = support::pattern(5 * columns, 1, 4.0);
    core::Tensor logitst = device.tensor({5, columns}, logits, dtype);
    core::Tensor targett = device.ids(targets);
    core::Tensor maximum = device.tensor({5});
    core::Tensor sum_exp = device.tensor({5});
    core::Tensor target_logit = device.tensor({5});
    core::Tensor losses = device.tensor({5});
    cross_entropy_statistics(*device.backend, device.stream,
                             {.logits = logitst,
                              .targets = targett,
                              .num_valid = vocab,
                              .vocab_size = vocab,
                              .maximum = maximum,
                              .sum_exp = sum_exp,
                              .target_logit = target_logit});
    auto finish = [&](CrossEntropyMode mode) {
        cross_entropy_finish(*device.backend, device.stream,
                             {.mode = mode,
                              .logits = logitst,
                              .targets = targett,
                              .num_valid = vocab,
                              .maximum = maximum,
                              .sum_exp = sum_exp,
                              .target_logit = target_logit,
                              .grad_scale = 0.125F,
                              .losses = losses});
    };
    std::vector<double> each;
    cross_entropy(logits, targets, static_cast<std::size_t>(columns), static_cast<std::size_t>(vocab), &each);
    finish(CrossEntropyMode::losses_only);
    support::expect_close(support::doubles(losses), each, 2e-6, "losses");
    EXPECT_EQ(support::doubles(logitst), logits);
    finish(CrossEntropyMode::losses_and_gradient);
    Doubles expected = support::central_differences(
            [&](const Doubles& l) {
                return cross_entropy(l, targets, static_cast<std::size_t>(columns), static_cast<std::size_t>(vocab));
            },
            logits);
    for (double& value : expected) value *= 0.125;
    support::expect_close(support::doubles(logitst), expected, 2 * support::storage_epsilon(dtype) + 2e-6, "gradient",
                          0.125);
    for (std::int64_t t = 0; t < 5; ++t) {
        for (std::int64_t i = vocab; i < columns; ++i)
            EXPECT_EQ(support::doubles(logitst)[static_cast<std::size_t>(t * columns + i)], 0.0);
    }
    device.check_guards();
}

INSTANTIATE_TEST_SUITE_P(Cases, Loss,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values(1, 7, 61, 131)));

TEST(LossShards, TwoHalvesGiveTheWhole) {
    TestDevice device;
    const std::vector<std::int32_t> targets = {0, 12, 6, -1};
    const Doubles logits = support::pattern(4 * 13, 2, 3.0);
    core::Tensor targett = device.ids(targets);
    struct Shard {
        std::int64_t begin, count;
        core::Tensor logits, maximum, sum_exp, target_logit;
    };
    std::vector<Shard> shards;
    for (const auto& [begin, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 7}, {7, 6}}) {
        Doubles part;
        for (std::int64_t t = 0; t < 4; ++t) {
            for (std::int64_t i = 0; i < 8; ++i)
                part.push_back(i < count ? logits[static_cast<std::size_t>(t * 13 + begin + i)] : 50.0);
        }
        Shard shard{
                begin, count, device.tensor({4, 8}, part), device.tensor({4}), device.tensor({4}), device.tensor({4})};
        cross_entropy_statistics(*device.backend, device.stream,
                                 {.logits = shard.logits,
                                  .targets = targett,
                                  .vocab_begin = begin,
                                  .num_valid = count,
                                  .vocab_size = 13,
                                  .maximum = shard.maximum,
                                  .sum_exp = shard.sum_exp,
                                  .target_logit = shard.target_logit});
        shards.push_back(std::move(shard));
    }
    // What the vocab-parallel exchange will do: max, then rescaled sums, then the sum of the target logits.
    core::Tensor maximum = device.tensor({4});
    core::Tensor sum_exp = device.tensor({4});
    core::Tensor target_logit = device.tensor({4});
    for (std::int64_t t = 0; t < 4; ++t) {
        const float m = std::max(shards[0].maximum.data<float>()[t], shards[1].maximum.data<float>()[t]);
        maximum.data<float>()[t] = m;
        sum_exp.data<float>()[t] = 0;
        for (const Shard& shard : shards)
            sum_exp.data<float>()[t] += shard.sum_exp.data<float>()[t] * std::exp(shard.maximum.data<float>()[t] - m);
        target_logit.data<float>()[t] =
                shards[0].target_logit.data<float>()[t] + shards[1].target_logit.data<float>()[t];
    }
    const Doubles expected =
            support::central_differences([&](const Doubles& l) { return cross_entropy(l, targets, 13, 13); }, logits);
    std::vector<double> each;
    cross_entropy(logits, targets, 13, 13, &each);
    core::Tensor losses = device.tensor({4});
    for (Shard& shard : shards) {
        cross_entropy_finish(*device.backend, device.stream,
                             {.logits = shard.logits,
                              .targets = targett,
                              .vocab_begin = shard.begin,
                              .num_valid = shard.count,
                              .maximum = maximum,
                              .sum_exp = sum_exp,
                              .target_logit = target_logit,
                              .losses = losses});
        support::expect_close(support::doubles(losses), each, 2e-6, "losses");
        for (std::int64_t t = 0; t < 4; ++t) {
            for (std::int64_t i = 0; i < shard.count; ++i) {
                EXPECT_NEAR(shard.logits.data<float>()[t * 8 + i],
                            expected[static_cast<std::size_t>(t * 13 + shard.begin + i)], 1e-6);
            }
        }
    }
}

TEST(LossChecks, RefuseTargetsOutsideTheVocabulary) {
    TestDevice device;
    core::Tensor logits = device.zeros({1, 8});
    core::Tensor maximum = device.tensor({1});
    for (const std::int32_t bad : {7, -2}) {
        core::Tensor target = device.ids({bad});
        EXPECT_THROW(cross_entropy_statistics(*device.backend, device.stream,
                                              {.logits = logits,
                                               .targets = target,
                                               .num_valid = 7,
                                               .vocab_size = 7,
                                               .maximum = maximum,
                                               .sum_exp = maximum,
                                               .target_logit = maximum}),
                     core::DataError);
    }
}

}  // namespace
}  // namespace tessera::kernels
