// Four tiny models against float64 values computed by an independent implementation (tests/data/make_reference.py).
#include "support/reference_case.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/engine_support.h"

namespace tessera {
namespace {

using support::ReferenceCase;

double norm_of(const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value * value;
    return std::sqrt(sum);
}

bool is_key_bias(const std::string& name) {
    return name.find("attention.key.bias") != std::string::npos;
}

class Reference : public testing::TestWithParam<std::string> {
protected:
    Reference() : reference_(support::load_reference_case(GetParam())) {}
    ReferenceCase reference_;
};

TEST_P(Reference, LogitsAndLossOfTheFirstBatch) {
    auto engine = support::make_reference_engine(reference_);
    const data::Batch batch = support::reference_batch(reference_, 0);
    const auto micro =
            train::make_micro_batch(engine->backend(), batch, 0, batch.num_samples, train::DocumentMask::off);
    const layers::ForwardContext ctx{.backend = engine->backend(), .stream = engine->stream(), .tokens = micro.map};
    const layers::Var logits = engine->model().logits(ctx, engine->model().forward(ctx, micro.tokens));
    double largest = 0;
    double error = 0;
    const std::int64_t padded = reference_.model.padded_vocab_size();
    for (std::size_t i = 0; i < reference_.logits0.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / reference_.model.vocab_size;
        const auto column = static_cast<std::int64_t>(i) % reference_.model.vocab_size;
        const double ours = logits.value.data<float>()[row * padded + column];
        largest = std::max(largest, std::abs(reference_.logits0[i]));
        error = std::max(error, std::abs(ours - reference_.logits0[i]));
    }
    EXPECT_LT(error, 1e-5 * largest);

    const train::LossSum sum = engine->evaluate(batch, batch.num_samples);
    EXPECT_NEAR(sum.loss / static_cast<double>(sum.tokens) / reference_.loss0, 1.0, 1e-6);
}

TEST_P(Reference, EveryGradient) {
    auto engine = support::make_reference_engine(reference_);
    const data::Batch batch = support::reference_batch(reference_, 0);
    const train::StepResult result = engine->accumulate_gradients(batch, batch.num_samples);
    EXPECT_NEAR(result.loss / reference_.loss0, 1.0, 1e-6);
    std::size_t seen = 0;
    support::for_each_logical(
            *engine, &zero::FlatUnit::main_grad, [&](const std::string& name, const float* values, std::int64_t count) {
                ++seen;
                const std::vector<double>& expected = reference_.grads0.at(name);
                double difference = 0;
                for (std::int64_t i = 0; i < count; ++i) {
                    difference += std::pow(values[i] - expected[static_cast<std::size_t>(i)], 2);
                }
                // The key bias has no gradient in exact arithmetic: its scale is that of its siblings.
                std::string scale_name = name;
                if (is_key_bias(name)) scale_name.replace(name.find("key"), 3, "query");
                EXPECT_LT(std::sqrt(difference), 1e-4 * norm_of(reference_.grads0.at(scale_name))) << name;
            });
    EXPECT_EQ(seen, reference_.grads0.size());
}

TEST_P(Reference, TwelveStepsOfTraining) {
    auto engine = support::make_reference_engine(reference_);
    for (std::int64_t step = 0; step < reference_.steps; ++step) {
        const auto index = static_cast<std::size_t>(step);
        const data::Batch batch = support::reference_batch(reference_, step);
        // Two micro-batches (of 2 and of the rest): accumulation is part of the case.
        const train::StepResult result = engine->train_step(batch, 2, reference_.lr_at[index]);
        EXPECT_NEAR(result.loss / reference_.loss[index], 1.0, 1e-4) << "step " << step;
        EXPECT_NEAR(result.grad_norm / reference_.grad_norm[index], 1.0, 1e-4) << "step " << step;
    }
    support::for_each_logical(
            *engine, &zero::FlatUnit::main_param,
            [&](const std::string& name, const float* values, std::int64_t count) {
                if (is_key_bias(name)) return;
                double difference = 0;
                double update = 0;
                for (std::int64_t i = 0; i < count; ++i) {
                    const double expected = reference_.final_weights.at(name)[static_cast<std::size_t>(i)];
                    difference += std::pow(values[i] - expected, 2);
                    update += std::pow(expected - reference_.weights.at(name)[static_cast<std::size_t>(i)], 2);
                }
                EXPECT_LT(std::sqrt(difference), 1e-3 * std::sqrt(update)) << name;
            });
}

TEST_P(Reference, Bf16GradientsPointTheSameWay) {
    auto engine = support::make_reference_engine(reference_, core::DType::bf16);
    const data::Batch batch = support::reference_batch(reference_, 0);
    engine->accumulate_gradients(batch, batch.num_samples);
    support::for_each_logical(*engine, &zero::FlatUnit::main_grad,
                              [&](const std::string& name, const float* values, std::int64_t count) {
                                  if (is_key_bias(name)) return;
                                  const std::vector<double>& expected = reference_.grads0.at(name);
                                  double dot = 0;
                                  double ours = 0;
                                  for (std::int64_t i = 0; i < count; ++i) {
                                      dot += values[i] * expected[static_cast<std::size_t>(i)];
                                      ours += std::pow(values[i], 2);
                                  }
                                  EXPECT_GE(dot / (std::sqrt(ours) * norm_of(expected)), 0.999) << name;
                              });
}

TEST_P(Reference, Bf16TrainingFollowsTheLosses) {
    auto engine = support::make_reference_engine(reference_, core::DType::bf16);
    for (std::int64_t step = 0; step < reference_.steps; ++step) {
        const auto index = static_cast<std::size_t>(step);
        const train::StepResult result =
                engine->train_step(support::reference_batch(reference_, step), 2, reference_.lr_at[index]);
        EXPECT_NEAR(result.loss / reference_.loss[index], 1.0, 1e-2) << "step " << step;
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, Reference, testing::ValuesIn(support::kReferenceCases),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace tessera
