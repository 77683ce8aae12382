#include "train/generation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "support/engine_support.h"

namespace tessera::train {
namespace {

constexpr std::int64_t kVocabulary = 61;

std::unique_ptr<Engine> make_engine(layers::Family family, double init_std = 0.3) {
    EngineSettings settings;
    settings.model = {.family = family,
                      .num_layers = 2,
                      .hidden_size = 24,
                      .num_attention_heads = 4,
                      .num_kv_heads = family == layers::Family::llama ? 2 : 4,
                      .ffn_hidden_size = 40,
                      .seq_length = 16,
                      .vocab_size = kVocabulary,
                      .tie_embeddings = family == layers::Family::gpt2,
                      .init_std = init_std};
    settings.state = zero::StateKind::values_only;
    auto engine = std::make_unique<Engine>(settings);
    engine->initialise();
    return engine;
}

std::vector<std::int32_t> prompt_of(std::size_t length) {
    std::vector<std::int32_t> prompt;
    for (std::size_t i = 0; i < length; ++i) prompt.push_back(static_cast<std::int32_t>((i * 17 + 5) % kVocabulary));
    return prompt;
}

class GenerationFamilies : public testing::TestWithParam<layers::Family> {};

TEST_P(GenerationFamilies, TheCacheChangesNothing_GE_02) {
    auto engine = make_engine(GetParam());
    for (const std::size_t length : {1U, 7U, 15U, 16U}) {
        for (const double temperature : {0.0, 0.9}) {
            GenerationRequest request{.prompt = prompt_of(length),
                                      .max_new_tokens = 40,
                                      .stop_ids = {},
                                      .sampling = {.temperature = temperature}};
            const auto cached = generate(*engine, request);
            request.cache = CacheUse::recompute;
            EXPECT_EQ(cached, generate(*engine, request)) << length;
            EXPECT_EQ(cached.size(), 16U - length);
        }
    }
}

TEST_P(GenerationFamilies, StopsAtAStopIdAndAtTheLimit_GE_04) {
    auto engine = make_engine(GetParam());
    GenerationRequest request{
            .prompt = prompt_of(3), .max_new_tokens = 10, .stop_ids = {}, .sampling = {.temperature = 0}};
    const auto free = generate(*engine, request);
    ASSERT_EQ(free.size(), 10U);
    request.stop_ids = {free[4]};
    const auto stopped = generate(*engine, request);
    EXPECT_LE(stopped.size(), 4U);
    for (std::size_t i = 0; i < stopped.size(); ++i) EXPECT_EQ(stopped[i], free[i]);
    request.max_new_tokens = 0;
    EXPECT_TRUE(generate(*engine, request).empty());
}

INSTANTIATE_TEST_SUITE_P(Both, GenerationFamilies, testing::Values(layers::Family::gpt2, layers::Family::llama),
                         [](const auto& instance) {
                             return instance.param == layers::Family::gpt2 ? "gpt2" : "llama";
                         });

TEST(Generation, RefusesPromptsThatDoNotFit_GE_05) {
    auto engine = make_engine(layers::Family::gpt2);
    EXPECT_THROW(generate(*engine, {.prompt = {}, .max_new_tokens = 1, .stop_ids = {}, .sampling = {}}),
                 core::UsageError);
    EXPECT_THROW(generate(*engine, {.prompt = prompt_of(17), .max_new_tokens = 1, .stop_ids = {}, .sampling = {}}),
                 core::UsageError);
    EXPECT_THROW(generate(*engine, {.prompt = {61}, .max_new_tokens = 1, .stop_ids = {}, .sampling = {}}),
                 core::DataError);
}

TEST(Generation, PaddingIdsAreNeverDrawn_GE_03) {
    auto engine = make_engine(layers::Family::llama, 0.02);
    std::set<std::int32_t> seen;
    for (std::uint64_t seed = 0; seed < 700; ++seed) {
        for (const std::int32_t id : generate(*engine, {.prompt = {3},
                                                       .max_new_tokens = 15,
                                                       .stop_ids = {},
                                                       .sampling = {.temperature = 5, .seed = seed}})) {
            ASSERT_LT(id, kVocabulary);
            seen.insert(id);
        }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(kVocabulary));
}

TEST(Sampling, ZeroTemperatureIsGreedy_GE_01) {
    const std::vector<float> logits = {0.5F, 2.0F, -1.0F, 2.0F, 0.0F};
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        EXPECT_EQ(sample_token(logits.data(), 5, {.temperature = 0, .seed = seed}, 3), 1);
        EXPECT_EQ(sample_token(logits.data(), 5, {.temperature = 1, .top_k = 1, .seed = seed}, 3), 1);
        EXPECT_EQ(sample_token(logits.data(), 5, {.temperature = 1e-6, .top_k = 1, .seed = seed}, 3), 1);
    }
    EXPECT_LT(sample_token(logits.data(), 5, {.temperature = 1e6}, 0), 5);
}

TEST(Sampling, FollowsTheProbabilities) {
    const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.15F), std::log(0.05F)};
    auto shares = [&](SamplingSettings settings) {
        std::vector<double> count(4, 0.0);
        for (std::int64_t position = 0; position < 20000; ++position)
            count[static_cast<std::size_t>(sample_token(logits.data(), 4, settings, position))] += 1.0 / 20000;
        return count;
    };
    const auto all = shares({});
    EXPECT_NEAR(all[0], 0.5, 0.015);
    EXPECT_NEAR(all[3], 0.05, 0.007);
    const auto two = shares({.top_k = 2});
    EXPECT_NEAR(two[0], 0.625, 0.015);
    EXPECT_EQ(two[2] + two[3], 0.0);
    // 0.5 + 0.3 reaches 0.7: two stay.
    const auto nucleus = shares({.top_p = 0.7});
    EXPECT_NEAR(nucleus[1], 0.375, 0.015);
    EXPECT_EQ(nucleus[2] + nucleus[3], 0.0);
    const auto cold = shares({.temperature = 0.5});
    EXPECT_NEAR(cold[0], 0.25 / 0.365, 0.015);
}

TEST(Sampling, RefusesWhatHasNoMeaning_GE_01) {
    EXPECT_THROW(SamplingSettings{.temperature = -1}.check(), core::UsageError);
    EXPECT_THROW(SamplingSettings{.temperature = std::numeric_limits<double>::quiet_NaN()}.check(), core::UsageError);
    EXPECT_THROW(SamplingSettings{.top_k = -1}.check(), core::UsageError);
    EXPECT_THROW(SamplingSettings{.top_p = 0}.check(), core::UsageError);
    EXPECT_THROW(SamplingSettings{.top_p = 1.5}.check(), core::UsageError);
    EXPECT_NO_THROW((SamplingSettings{.temperature = 0, .top_k = 0, .top_p = 1}.check()));
}

}  // namespace
}  // namespace tessera::train
