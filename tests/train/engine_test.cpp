// Laws of one process: how a step is cut into micro-batches, resumed or masked never changes what is computed.
#include "train/engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/engine_support.h"

namespace tessera::train {
namespace {

/// Odd sizes, both dropouts, clipping, decay: nothing divides by a vector width.
EngineSettings odd_settings(layers::Family family) {
    EngineSettings settings;
    settings.model = {.family = family,
                      .num_layers = 2,
                      .hidden_size = 36,
                      .num_attention_heads = 6,
                      .num_kv_heads = family == layers::Family::llama ? 3 : 6,
                      .ffn_hidden_size = 52,
                      .seq_length = 17,
                      .vocab_size = 61,
                      .tie_embeddings = family == layers::Family::gpt2,
                      .hidden_dropout = 0.1,
                      .attention_dropout = 0.1};
    settings.optimizer = {.weight_decay = 0.1, .clip_grad_norm = 0.5};
    settings.seed = 11;
    return settings;
}

std::vector<StepResult> train(const EngineSettings& settings, std::int64_t micro_batch_size, int steps, double masked) {
    Engine engine(settings);
    engine.initialise();
    std::vector<StepResult> results;
    for (int step = 0; step < steps; ++step) {
        const data::Batch batch = support::random_batch(
                {.step = step, .num_samples = 6, .seq_length = 17, .vocab_size = 61, .masked = masked});
        results.push_back(engine.train_step(batch, micro_batch_size, 3e-3));
    }
    return results;
}

class Families : public testing::TestWithParam<layers::Family> {};

TEST_P(Families, AnyMicroBatchSplitTrainsTheSameModel_NU_09) {
    for (const DocumentMask mask : {DocumentMask::off, DocumentMask::on}) {
        EngineSettings settings = odd_settings(GetParam());
        settings.document_mask = mask;
        const auto whole = train(settings, 6, 20, 0.3);
        for (const std::int64_t micro : {1, 2, 4}) {
            const auto split = train(settings, micro, 20, 0.3);
            for (std::size_t step = 0; step < whole.size(); ++step) {
                EXPECT_NEAR(split[step].loss / whole[step].loss, 1.0, 1e-5)
                        << "micro-batch " << micro << ", step " << step;
                EXPECT_NEAR(split[step].grad_norm / whole[step].grad_norm, 1.0, 1e-4);
            }
        }
    }
}

TEST_P(Families, TrainingLearns) {
    const auto results = train(odd_settings(GetParam()), 6, 60, 0.0);
    EXPECT_LT(results.back().loss, results.front().loss - 0.5);
}

TEST_P(Families, TheSameRunGivesTheSameBits) {
    const auto a = train(odd_settings(GetParam()), 3, 5, 0.2);
    const auto b = train(odd_settings(GetParam()), 3, 5, 0.2);
    for (std::size_t step = 0; step < a.size(); ++step) {
        EXPECT_EQ(a[step].loss, b[step].loss);
        EXPECT_EQ(a[step].grad_norm, b[step].grad_norm);
    }
}

TEST_P(Families, DropoutActsInTrainingOnlyAndFollowsTheSeed) {
    EngineSettings settings = odd_settings(GetParam());
    const data::Batch batch = support::random_batch({.num_samples = 2, .seq_length = 17, .vocab_size = 61});
    auto loss = [&](std::uint64_t seed, double dropout, bool training) {
        settings.model.hidden_dropout = dropout;
        Engine engine(settings);
        engine.parameters().initialise(5);
        // The engine's own seed is the dropout's.
        if (!training) return engine.evaluate(batch, 2).loss / static_cast<double>(batch.loss_tokens);
        EngineSettings seeded = settings;
        seeded.seed = seed;
        Engine other(seeded);
        other.parameters().initialise(5);
        return other.accumulate_gradients(batch, 2).loss;
    };
    EXPECT_NE(loss(1, 0.3, true), loss(2, 0.3, true));
    EXPECT_EQ(loss(1, 0.3, true), loss(1, 0.3, true));
    EXPECT_EQ(loss(1, 0.3, false), loss(1, 0.0, false));
}

TEST_P(Families, ADocumentMaskSeparatesDocuments_DA_18) {
    EngineSettings settings = odd_settings(GetParam());
    settings.model.hidden_dropout = settings.model.attention_dropout = 0;
    settings.model.init_std = 0.2;  // large enough for attention to matter
    settings.document_mask = DocumentMask::on;
    data::Batch packed = support::random_batch({.num_samples = 1, .seq_length = 17, .vocab_size = 61});
    packed.document_borders[0] = {7};
    packed.targets[6] = -1;
    packed.loss_tokens = 16;
    data::Batch apart = packed;
    apart.num_samples = 2;
    apart.sample_index = {0, 1};
    apart.document_borders = {{}, {}};
    apart.tokens.assign(34, 0);
    apart.targets.assign(34, -1);
    std::copy(packed.tokens.begin(), packed.tokens.begin() + 7, apart.tokens.begin());
    std::copy(packed.targets.begin(), packed.targets.begin() + 7, apart.targets.begin());
    std::copy(packed.tokens.begin() + 7, packed.tokens.end(), apart.tokens.begin() + 17);
    std::copy(packed.targets.begin() + 7, packed.targets.end(), apart.targets.begin() + 17);

    Engine a(settings);
    a.initialise();
    Engine b(settings);
    b.initialise();
    EXPECT_NEAR(a.accumulate_gradients(packed, 1).loss / b.accumulate_gradients(apart, 2).loss, 1.0, 1e-5);
    EXPECT_NEAR(a.parameters().gradient_norm() / b.parameters().gradient_norm(), 1.0, 1e-5);

    // Positive control: without the mask the second document sees the first.
    settings.document_mask = DocumentMask::off;
    Engine c(settings);
    c.initialise();
    EXPECT_GT(std::abs(c.accumulate_gradients(packed, 1).loss / b.accumulate_gradients(apart, 2).loss - 1.0), 1e-4);
}

TEST_P(Families, ABatchWithoutLossTokensChangesNothing_NU_13) {
    Engine engine(odd_settings(GetParam()));
    engine.initialise();
    data::Batch batch = support::random_batch({.num_samples = 2, .seq_length = 17, .vocab_size = 61, .masked = 1.0});
    ASSERT_EQ(batch.loss_tokens, 0);
    const StepResult nothing = engine.train_step(batch, 1, 1e-2);
    EXPECT_FALSE(nothing.updated);
    EXPECT_EQ(nothing.loss, 0);
    EXPECT_EQ(engine.optimizer().updates(), 0);
    // One micro-batch without any: finite, and equal to the other alone.
    data::Batch half = support::random_batch({.num_samples = 2, .seq_length = 17, .vocab_size = 61});
    std::fill(half.targets.begin() + 17, half.targets.end(), -1);
    half.loss_tokens = 17;
    EXPECT_TRUE(std::isfinite(engine.train_step(half, 1, 1e-2).loss));
}

TEST_P(Families, DecayTouchesMatricesOnly_NU_10) {
    auto after_one_step = [&](double decay) {
        EngineSettings settings = odd_settings(GetParam());
        settings.optimizer.weight_decay = decay;
        Engine engine(settings);
        engine.initialise();
        engine.train_step(support::random_batch({.num_samples = 2, .seq_length = 17, .vocab_size = 61}), 2, 1e-3);
        std::map<std::string, std::vector<float>> values;
        support::for_each_logical(
                engine, &zero::FlatUnit::main_param,
                [&](const std::string& name, const float* v, std::int64_t n) { values[name].assign(v, v + n); });
        return values;
    };
    const auto without = after_one_step(0);
    const auto with = after_one_step(10);
    for (const auto& [name, values] : without) {
        const bool one_dimensional = name.find("norm") != std::string::npos || name.find("bias") != std::string::npos;
        EXPECT_EQ(values == with.at(name), one_dimensional) << name;
    }
}

TEST_P(Families, PeakMemoryDoesNotDependOnAccumulation_ME_02) {
    auto peak = [&](std::int64_t samples) {
        Engine engine(odd_settings(GetParam()));
        engine.initialise();
        engine.train_step(support::random_batch({.num_samples = samples, .seq_length = 17, .vocab_size = 61}), 2, 1e-3);
        return engine.pool().statistics().peak_bytes;
    };
    EXPECT_EQ(peak(2), peak(16));
}

INSTANTIATE_TEST_SUITE_P(Both, Families, testing::Values(layers::Family::gpt2, layers::Family::llama),
                         [](const auto& instance) {
                             return instance.param == layers::Family::gpt2 ? "gpt2" : "llama";
                         });

TEST(Engine, AnOverflowIsSkippedAndTheScaleFalls) {
    EngineSettings settings = odd_settings(layers::Family::gpt2);
    settings.model.dtype = core::DType::f16;
    settings.loss_scaler = {.dynamic = true, .initial = 0x1p60, .minimum = 1, .window = 4, .hysteresis = 1};
    Engine engine(settings);
    engine.initialise();
    const data::Batch batch = support::random_batch({.num_samples = 2, .seq_length = 17, .vocab_size = 61});
    const StepResult first = engine.train_step(batch, 2, 1e-3);
    EXPECT_FALSE(first.updated);
    EXPECT_EQ(engine.optimizer().updates(), 0);
    EXPECT_EQ(engine.loss_scaler().scale(), 0x1p59);
    int skipped = 1;
    while (!engine.train_step(batch, 2, 1e-3).updated) ASSERT_LT(++skipped, 60);
    EXPECT_EQ(engine.optimizer().updates(), 1);
}

TEST(Engine, F16TrainsLikeF32) {
    EngineSettings settings = odd_settings(layers::Family::llama);
    const auto wide = train(settings, 3, 20, 0.1);
    settings.model.dtype = core::DType::f16;
    settings.loss_scaler = {.dynamic = true, .initial = 1024, .minimum = 1, .window = 1000, .hysteresis = 2};
    const auto half = train(settings, 3, 20, 0.1);
    for (std::size_t step = 0; step < wide.size(); ++step) EXPECT_NEAR(half[step].loss / wide[step].loss, 1.0, 1e-2);
}

TEST(Engine, MetaRunsTheSameStepAndCountsTheFormulasFlops) {
    for (const layers::Family family : {layers::Family::gpt2, layers::Family::llama}) {
        EngineSettings settings = odd_settings(family);
        const data::Batch batch = support::random_batch({.num_samples = 16, .seq_length = 17, .vocab_size = 61});
        Engine cpu(settings);
        cpu.initialise();
        cpu.train_step(batch, 16, 1e-3);
        settings.device = core::DeviceType::meta;
        Engine meta(settings);
        meta.initialise();
        const StepResult result = meta.train_step(batch, 16, 1e-3);
        // 16·17 is a multiple of 16: no padding tokens, so the operations do exactly the model's FLOPs.
        EXPECT_EQ(meta.backend().account().total().flops, result.model_flops);
        EXPECT_EQ(result.model_flops, layers::training_flops(settings.model, 16 * 17, 16 * 17 * 17));
        EXPECT_EQ(cpu.backend().account().total().flops, meta.backend().account().total().flops);
        EXPECT_EQ(cpu.backend().account().total().calls, meta.backend().account().total().calls);
        EXPECT_EQ(cpu.pool().statistics().peak_bytes, meta.pool().statistics().peak_bytes);
        EXPECT_GT(meta.stream().time_s(), 0);
    }
}

TEST(Engine, MetaHoldsASeventeenBillionParameterModel) {
    EngineSettings settings;
    settings.device = core::DeviceType::meta;
    settings.model = {.num_layers = 78,
                      .hidden_size = 4256,
                      .num_attention_heads = 28,
                      .num_kv_heads = 28,
                      .ffn_hidden_size = 4 * 4256,
                      .seq_length = 1024,
                      .vocab_size = 50257};
    settings.model.dtype = core::DType::bf16;
    Engine engine(settings);
    engine.initialise();
    EXPECT_NEAR(static_cast<double>(layers::parameter_count(settings.model)) / 1e9, 17.18, 0.01);
    // 2 (values) + 4 (gradients) + 12 (main parameters and moments) bytes a parameter.
    EXPECT_NEAR(static_cast<double>(engine.pool().statistics().current_bytes) / 1e9, 18 * 17.18, 0.5);
}

}  // namespace
}  // namespace tessera::train
