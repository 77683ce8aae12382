#include "layers/tape.h"

#include <gtest/gtest.h>

#include "layers/gpt.h"
#include "zero/flat_parameters.h"

namespace tessera::layers {
namespace {

using core::MemoryCategory;
using core::Tensor;

class TapeTest : public testing::Test {
protected:
    TapeTest()
        : pool_(core::DeviceType::cpu),
          backend_(kernels::make_cpu_backend(pool_)),
          stream_(core::DeviceType::cpu, core::StreamKind::compute) {}

    Tensor filled(float value) {
        Tensor tensor = Tensor::empty(pool_, {3}, core::DType::f32, MemoryCategory::activations);
        std::fill_n(tensor.data<float>(), 3, value);
        return tensor;
    }

    core::MemoryPool pool_;
    std::unique_ptr<kernels::Backend> backend_;
    core::Stream stream_;
};

TEST_F(TapeTest, GradientsAreAddedWherePathsJoin) {
    Tape tape(*backend_, stream_);
    const std::int64_t id = tape.new_id();
    tape.add_gradient(id, filled(1));
    tape.add_gradient(id, filled(2));
    tape.add_gradient(-1, filled(9));
    EXPECT_EQ(tape.take_gradient(id).data<float>()[2], 3.0F);
    EXPECT_FALSE(tape.take_gradient(id).defined());
}

TEST_F(TapeTest, ASharedGradientIsNeverWrittenTo) {
    Tape tape(*backend_, stream_);
    const std::int64_t a = tape.new_id();
    const std::int64_t b = tape.new_id();
    Tensor shared = filled(1);
    tape.add_gradient(a, shared);
    tape.add_gradient(b, shared);
    const float* kept = shared.data<float>();
    tape.add_gradient(a, filled(5));
    Tensor other = filled(7);
    tape.add_gradient(b, other);  // both sides are shared: a third tensor is needed
    EXPECT_EQ(kept[0], 1.0F);
    EXPECT_EQ(other.data<float>()[0], 7.0F);
    EXPECT_EQ(tape.take_gradient(a).data<float>()[0], 6.0F);
    EXPECT_EQ(tape.take_gradient(b).data<float>()[0], 8.0F);
}

/// A two-layer model and a micro-batch of one sequence.
class TapeModelTest : public TapeTest {
protected:
    TapeModelTest()
        : model_(config()),
          parameters_(*backend_, stream_, model_.units(), core::DType::f32, zero::StateKind::training) {
        parameters_.initialise(3);
        auto ids = [&](std::vector<std::int32_t> values) {
            Tensor tensor = Tensor::empty(pool_, {16}, core::DType::i32, MemoryCategory::workspace);
            tensor.copy_from_host(values.data());
            return tensor;
        };
        std::vector<std::int32_t> positions(16);
        std::vector<std::int32_t> tokens(16);
        std::vector<std::int32_t> targets(16);
        for (std::int32_t i = 0; i < 16; ++i) {
            positions[static_cast<std::size_t>(i)] = i;
            tokens[static_cast<std::size_t>(i)] = (i * 7) % 11;
            targets[static_cast<std::size_t>(i)] = (i * 3) % 11;
        }
        map_.offset = ids(positions);
        map_.position = map_.offset;
        map_.sample = Tensor::zeros(pool_, {16}, core::DType::i64, MemoryCategory::workspace);
        const std::int32_t borders[] = {0, 16};
        map_.cu_seqlens = Tensor::empty(pool_, {2}, core::DType::i32, MemoryCategory::workspace);
        map_.cu_seqlens.copy_from_host(borders);
        map_.max_seqlen = map_.seq_length = 16;
        map_.sum_squared_seqlens = 256;
        tokens_ = ids(tokens);
        targets_ = ids(targets);
    }

    static ModelConfig config() {
        return {.num_layers = 2,
                .hidden_size = 12,
                .num_attention_heads = 3,
                .num_kv_heads = 3,
                .ffn_hidden_size = 20,
                .seq_length = 16,
                .vocab_size = 11,
                .hidden_dropout = 0.1};
    }

    std::vector<float> gradients() {
        std::vector<float> all;
        for (zero::FlatUnit& flat : parameters_.units()) {
            const float* values = flat.main_grad.data<float>();
            all.insert(all.end(), values, values + flat.main_grad.numel());
            flat.main_grad.fill_zero();
        }
        return all;
    }

    Gpt model_;
    zero::FlatParameters parameters_;
    kernels::TokenMap map_;
    Tensor tokens_;
    Tensor targets_;
};

TEST_F(TapeModelTest, DeferredWeightGradientsAreTheSameAndKeepOnlyTheirInputs) {
    auto run = [&](WeightGradients mode) {
        Tape tape(*backend_, stream_);
        const ForwardContext ctx{
                .backend = *backend_, .stream = stream_, .tape = &tape, .tokens = map_, .mode = Mode::train, .seed = 1};
        model_.loss(ctx, tokens_, targets_, 1.0 / 16);
        const std::int64_t saved = tape.saved_bytes();
        EXPECT_GT(saved, 0);
        tape.backward(mode);
        if (mode == WeightGradients::immediate) {
            EXPECT_EQ(tape.saved_bytes(), 0);
        } else {
            EXPECT_GT(tape.pending_bytes(), 0);
            EXPECT_EQ(tape.pending_bytes(), tape.saved_bytes());
            tape.run_weight_gradients();
            EXPECT_EQ(tape.pending_bytes(), 0);
        }
        return gradients();
    };
    const auto immediate = run(WeightGradients::immediate);
    EXPECT_EQ(immediate, run(WeightGradients::deferred));
    EXPECT_GT(*std::max_element(immediate.begin(), immediate.end()), 0.0F);
}

TEST_F(TapeModelTest, BackwardReturnsAllActivationMemory) {
    const std::int64_t before = pool_.statistics()[MemoryCategory::activations].current_bytes;
    {
        Tape tape(*backend_, stream_);
        const ForwardContext ctx{.backend = *backend_, .stream = stream_, .tape = &tape, .tokens = map_};
        model_.loss(ctx, tokens_, targets_, 1.0);
        // What lives after the forward is what the tape says it kept (the logits are its gradient by then).
        const auto statistics = pool_.statistics();
        EXPECT_EQ(statistics[MemoryCategory::activations].current_bytes - before +
                          statistics[MemoryCategory::logits].current_bytes + tokens_.storage()->bytes(),
                  tape.saved_bytes());
        tape.backward(WeightGradients::immediate);
        EXPECT_EQ(pool_.statistics()[MemoryCategory::activations].current_bytes, before);
        EXPECT_EQ(pool_.statistics()[MemoryCategory::logits].current_bytes, 0);
    }
    for (const ParameterUnit* unit : model_.units()) EXPECT_EQ(parameters_.leases(*unit), 0);
}

TEST_F(TapeModelTest, WhatTheTapeKeepsMayNotBeOverwritten) {
    Tape tape(*backend_, stream_);
    const ForwardContext ctx{.backend = *backend_, .stream = stream_, .tape = &tape, .tokens = map_};
    const Var hidden = model_.forward(ctx, tokens_);
    EXPECT_TRUE(tape.may_overwrite(hidden.value));
    const Var logits = model_.logits(ctx, hidden);
    EXPECT_FALSE(tape.may_overwrite(hidden.value));
    EXPECT_TRUE(tape.may_overwrite(logits.value));
}

TEST_F(TapeModelTest, EvaluationKeepsNothing) {
    const ForwardContext ctx{.backend = *backend_, .stream = stream_, .tokens = map_};
    const std::int64_t before = pool_.statistics().current_bytes;
    model_.loss(ctx, tokens_, targets_, 1.0);
    EXPECT_EQ(pool_.statistics().current_bytes, before);
}

TEST(Gpt, CountsItsParameters) {
    for (const Family family : {Family::gpt2, Family::llama}) {
        for (const bool tied : {false, true}) {
            ModelConfig config{.family = family,
                               .num_layers = 3,
                               .hidden_size = 24,
                               .num_attention_heads = 4,
                               .num_kv_heads = 2,
                               .ffn_hidden_size = 40,
                               .seq_length = 9,
                               .vocab_size = 131,
                               .tie_embeddings = tied};
            const Gpt model(config);
            std::int64_t count = 0;
            for (const ParameterUnit* unit : model.units()) {
                for (const auto& parameter : unit->parameters()) count += parameter->logical_numel();
            }
            EXPECT_EQ(count, parameter_count(config));
        }
    }
    const ModelConfig gpt2{.num_layers = 12,
                           .hidden_size = 768,
                           .num_attention_heads = 12,
                           .num_kv_heads = 12,
                           .ffn_hidden_size = 3072,
                           .seq_length = 1024,
                           .vocab_size = 50257};
    EXPECT_EQ(parameter_count(gpt2), 124439808);
}

TEST(Gpt, RefusesHeadsThatDoNotDivide) {
    EXPECT_THROW(Gpt({.num_layers = 1,
                      .hidden_size = 10,
                      .num_attention_heads = 3,
                      .num_kv_heads = 3,
                      .ffn_hidden_size = 8,
                      .seq_length = 4,
                      .vocab_size = 7}),
                 core::ConfigError);
    EXPECT_THROW(Gpt({.num_layers = 1,
                      .hidden_size = 12,
                      .num_attention_heads = 4,
                      .num_kv_heads = 3,
                      .ffn_hidden_size = 8,
                      .seq_length = 4,
                      .vocab_size = 7}),
                 core::ConfigError);
}

}  // namespace
}  // namespace tessera::layers
