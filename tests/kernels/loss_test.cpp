#include "kernels/loss.h"

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::expect_same_bits;
using support::values;
using Values = std::vector<double>;

struct LossSize {
    std::int64_t tokens, num_valid, columns;
    std::string name(DType dtype) const {
        return fmt::format("{} tokens, {} of {} columns {}", tokens, num_valid, columns, core::name_of(dtype));
    }
};

const std::vector<LossSize> kSizes = {{1, 1, 1}, {1, 3, 8}, {7, 19, 19}, {13, 131, 192}, {3, 1021, 1024}, {5, 76, 80}};
constexpr float kGradScale = 0.125F;

struct Statistics {
    Tensor maximum, sum_exp, target_logit;
    Statistics(support::Device& device, std::int64_t tokens)
        : maximum(device.make({tokens}, DType::f32)),
          sum_exp(device.make({tokens}, DType::f32)),
          target_logit(device.make({tokens}, DType::f32)) {}
};

class LossTest : public support::KernelTest {
protected:
    /// Logits whose padding columns are large, so that a kernel that reads them fails.
    Tensor make_logits(const LossSize& s, DType dtype) {
        Tensor logits = device.random({s.tokens, s.columns}, dtype, 8.0);
        for (std::int64_t i = 0; i < logits.numel(); ++i) {
            if (i % s.columns >= s.num_valid) support::set_element(logits, i, 1000.0);
        }
        return logits;
    }
    /// Every fifth token has no loss.
    Tensor make_targets(std::int64_t tokens, std::int64_t vocab) {
        std::vector<std::int32_t> targets;
        for (std::int64_t t = 0; t < tokens; ++t) {
            targets.push_back(t % 5 == 4 ? -1 : static_cast<std::int32_t>((t * 7 + vocab - 1) % vocab));
        }
        return device.of(targets);
    }
    void statistics(const Tensor& logits, const Tensor& targets, Statistics& s, std::int64_t begin, std::int64_t valid,
                    std::int64_t vocab) {
        cross_entropy_statistics(device.backend(), device.stream(),
                                 {.logits = logits,
                                  .targets = targets,
                                  .vocab_begin = begin,
                                  .num_valid = valid,
                                  .vocab_size = vocab,
                                  .maximum = s.maximum,
                                  .sum_exp = s.sum_exp,
                                  .target_logit = s.target_logit});
    }
    void finish(Tensor& logits, const Tensor& targets, const Statistics& s, std::int64_t begin, std::int64_t valid,
                Tensor& losses, CrossEntropyMode mode = CrossEntropyMode::losses_and_gradient) {
        cross_entropy_finish(device.backend(), device.stream(),
                             {.mode = mode,
                              .logits = logits,
                              .targets = targets,
                              .vocab_begin = begin,
                              .num_valid = valid,
                              .maximum = s.maximum,
                              .sum_exp = s.sum_exp,
                              .target_logit = s.target_logit,
                              .grad_scale = kGradScale,
                              .losses = losses});
    }
};

/// Losses and their gradient in double; x [tokens, columns].
struct Reference {
    Values maximum, sum_exp, target_logit, losses, gradient;
    Reference(const Values& x, const Tensor& targets, std::int64_t num_valid, std::int64_t columns)
        : gradient(x.size()) {
        for (std::int64_t t = 0; t < targets.numel(); ++t) {
            const double* row = x.data() + t * columns;
            const double largest = *std::max_element(row, row + num_valid);
            double sum = 0;
            for (std::int64_t v = 0; v < num_valid; ++v) sum += std::exp(row[v] - largest);
            const std::int32_t target = targets.data<std::int32_t>()[t];
            maximum.push_back(largest);
            sum_exp.push_back(sum);
            target_logit.push_back(target < 0 ? 0.0 : row[target]);
            losses.push_back(target < 0 ? 0.0 : std::log(sum) + largest - row[target]);
            for (std::int64_t v = 0; v < num_valid && target >= 0; ++v) {
                gradient[static_cast<std::size_t>(t * columns + v)] =
                        (std::exp(row[v] - largest) / sum - (v == target ? 1.0 : 0.0)) *
                        static_cast<double>(kGradScale);
            }
        }
    }
};

TEST_F(LossTest, StatisticsLossesAndGradient) {
    for (const LossSize& s : kSizes) {
        for (const DType dtype : support::kFloatingDTypes) {
            Tensor logits = make_logits(s, dtype);
            const Tensor targets = make_targets(s.tokens, s.num_valid);
            const Values x = values(logits);
            const Reference expected(x, targets, s.num_valid, s.columns);
            Statistics got(device, s.tokens);
            Tensor losses = device.make({s.tokens}, DType::f32);
            statistics(logits, targets, got, 0, s.num_valid, s.num_valid);
            expect_close("maximum " + s.name(dtype), got.maximum, expected.maximum, {});
            expect_close("sum_exp " + s.name(dtype), got.sum_exp, expected.sum_exp,
                         {.terms = static_cast<double>(s.num_valid + 4)});
            expect_close("target_logit " + s.name(dtype), got.target_logit, expected.target_logit, {});
            const Tensor before = device.copy_of(logits);
            finish(logits, targets, got, 0, s.num_valid, losses, CrossEntropyMode::losses_only);
            expect_same_bits("logits of losses_only " + s.name(dtype), logits, before);
            const support::Tolerance tolerance{.terms = static_cast<double>(s.num_valid + 8), .magnitude = 8};
            expect_close("losses_only " + s.name(dtype), losses, expected.losses, tolerance);
            finish(logits, targets, got, 0, s.num_valid, losses);
            expect_close("losses " + s.name(dtype), losses, expected.losses, tolerance);
            expect_close("gradient " + s.name(dtype), logits, expected.gradient,
                         {.terms = static_cast<double>(s.num_valid + 8), .magnitude = 0.125});
        }
    }
}

TEST_F(LossTest, GradientAgainstCentralDifferences) {
    const LossSize s{3, 19, 24};
    Tensor logits = make_logits(s, DType::f32);
    const Tensor targets = device.of(std::vector<std::int32_t>{18, -1, 0});
    const Values x = values(logits);
    Statistics got(device, s.tokens);
    Tensor losses = device.make({s.tokens}, DType::f32);
    statistics(logits, targets, got, 0, s.num_valid, s.num_valid);
    finish(logits, targets, got, 0, s.num_valid, losses);
    support::expect_gradient({.what = "logits",
                              .actual = logits,
                              .x = x,
                              .objective =
                                      [&](const Values& at) {
                                          const Reference r(at, targets, s.num_valid, s.columns);
                                          double sum = 0;
                                          for (const double loss : r.losses) sum += loss * double{kGradScale};
                                          return sum;
                                      },
                              .tolerance = {.terms = 24, .magnitude = 1}});
}

/// Two halves of the vocabulary, each with its own padding, combined as tensor-parallel ranks do.
TEST_F(LossTest, HalvesOfTheVocabularyEqualTheWhole) {
    constexpr std::int64_t kTokens = 13;
    constexpr std::int64_t kVocab = 131;
    constexpr std::int64_t kFirst = 72;
    Tensor whole = device.random({kTokens, kVocab}, DType::f32, 8.0);
    const Tensor targets = make_targets(kTokens, kVocab);
    Statistics all(device, kTokens);
    statistics(whole, targets, all, 0, kVocab, kVocab);
    Tensor left = device.filled({kTokens, kFirst}, DType::f32, 0.0);
    Tensor right = device.filled({kTokens, kFirst}, DType::f32, 1000.0);
    for (std::int64_t i = 0; i < whole.numel(); ++i) {
        const std::int64_t v = i % kVocab;
        const std::int64_t row = i / kVocab * kFirst;
        support::set_element(v < kFirst ? left : right, row + (v < kFirst ? v : v - kFirst),
                             support::element(whole, i));
    }
    Statistics lower(device, kTokens);
    Statistics upper(device, kTokens);
    statistics(left, targets, lower, 0, kFirst, kVocab);
    statistics(right, targets, upper, kFirst, kVocab - kFirst, kVocab);
    Statistics joined(device, kTokens);
    for (std::int64_t t = 0; t < kTokens; ++t) {
        const double low = support::element(lower.maximum, t);
        const double high = support::element(upper.maximum, t);
        const double largest = std::max(low, high);
        support::set_element(joined.maximum, t, largest);
        support::set_element(joined.sum_exp, t,
                             support::element(lower.sum_exp, t) * std::exp(low - largest) +
                                     support::element(upper.sum_exp, t) * std::exp(high - largest));
        support::set_element(joined.target_logit, t,
                             support::element(lower.target_logit, t) + support::element(upper.target_logit, t));
    }
    expect_same_bits("maximum", joined.maximum, all.maximum);
    expect_same_bits("target_logit", joined.target_logit, all.target_logit);
    expect_close("sum_exp", joined.sum_exp, values(all.sum_exp), {.terms = 140});
    const Reference expected(values(whole), targets, kVocab, kVocab);
    Tensor losses = device.make({kTokens}, DType::f32);
    finish(left, targets, joined, 0, kFirst, losses);
    expect_close("losses of the left", losses, expected.losses, {.terms = 140, .magnitude = 8});
    finish(right, targets, joined, kFirst, kVocab - kFirst, losses);
    expect_close("losses of the right", losses, expected.losses, {.terms = 140, .magnitude = 8});
    for (std::int64_t i = 0; i < whole.numel(); ++i) {
        const std::int64_t v = i % kVocab;
        const std::int64_t row = i / kVocab * kFirst;
        ASSERT_NEAR(support::element(v < kFirst ? left : right, row + (v < kFirst ? v : v - kFirst)),
                    expected.gradient[static_cast<std::size_t>(i)], 1e-6)
                << i;
    }
    for (std::int64_t t = 0; t < kTokens; ++t) {
        for (std::int64_t v = kVocab - kFirst; v < kFirst; ++v) ASSERT_EQ(support::element(right, t * kFirst + v), 0.0);
    }
}

TEST_F(LossTest, LargeLogitsStayFinite) {
    Tensor logits = device.of(std::vector<float>{3e4F, -3e4F, 0.0F}).reshape({1, 3});
    const Tensor targets = device.of(std::vector<std::int32_t>{1});
    Statistics got(device, 1);
    Tensor losses = device.make({1}, DType::f32);
    statistics(logits, targets, got, 0, 3, 3);
    finish(logits, targets, got, 0, 3, losses);
    expect_close("loss", losses, {6e4}, {});
    expect_close("gradient", logits, {kGradScale, -kGradScale, 0}, {});
}

TEST_F(LossTest, TargetsOutsideTheVocabularyAreDataErrors) {
    const Tensor logits = device.random({2, 8}, DType::f32);
    for (const std::int32_t bad : {7, -2}) {
        const Tensor targets = device.of(std::vector<std::int32_t>{0, bad});
        Statistics got(device, 2);
        try {
            statistics(logits, targets, got, 0, 7, 7);
            ADD_FAILURE() << "target " << bad << " was taken";
        } catch (const core::DataError& error) {
            EXPECT_EQ(std::string(error.what()),
                      fmt::format("target id {} of token 1 is outside the vocabulary of 7 (-1 = no loss)", bad));
        }
    }
}

}  // namespace
}  // namespace tessera::kernels
