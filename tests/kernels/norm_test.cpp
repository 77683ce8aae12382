#include "kernels/norm.h"

#include <gtest/gtest.h>

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using support::Doubles;
using support::TestDevice;

constexpr double kEps = 1e-5;

Doubles reference_norm(NormKind kind, std::int64_t hidden, const Doubles& x, const Doubles& gamma,
                       const Doubles& beta) {
    Doubles y(x.size());
    const auto d = static_cast<std::size_t>(hidden);
    for (std::size_t row = 0; row < x.size(); row += d) {
        double mean = 0;
        for (std::size_t i = 0; i < d; ++i) mean += x[row + i] / static_cast<double>(hidden);
        if (kind == NormKind::rms) mean = 0;
        double variance = 0;
        for (std::size_t i = 0; i < d; ++i)
            variance += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(hidden);
        for (std::size_t i = 0; i < d; ++i) {
            y[row + i] = (x[row + i] - mean) / std::sqrt(variance + kEps) * gamma[i] + (beta.empty() ? 0.0 : beta[i]);
        }
    }
    return y;
}

struct Case {
    NormKind kind;
    std::int64_t tokens, hidden;
    DType dtype;
    float dropout;
    bool with_norm;
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << (c.kind == NormKind::layer ? "layer " : "rms ") << c.tokens << "x" << c.hidden << " "
         << core::name_of(c.dtype) << " dropout " << c.dropout << (c.with_norm ? "" : " without norm");
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
        for (const auto& [tokens, hidden] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 19}, {35, 76}, {65, 8}}) {
            for (const float dropout : {0.0F, 0.3F}) {
                all.push_back({kind, tokens, hidden, DType::f32, dropout, true});
            }
        }
        for (const DType dtype : {DType::bf16, DType::f16}) all.push_back({kind, 5, 76, dtype, 0.3F, true});
    }
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        all.push_back({NormKind::layer, 35, 19, dtype, 0.3F, false});
    all.push_back({NormKind::layer, 4, 131, DType::f32, 0.0F, false});
    return all;
}

class Norm : public testing::TestWithParam<Case> {
protected:
    Norm()
        : c_(GetParam()),
          n_(c_.tokens * c_.hidden),
          x_(support::pattern(n_, 1)),
          gamma_(support::pattern(c_.hidden, 2)),
          beta_(c_.kind == NormKind::layer ? support::pattern(c_.hidden, 3) : Doubles{}),
          bias_(support::pattern(c_.hidden, 4)),
          residual_(support::pattern(n_, 5)),
          dy_(support::pattern(n_, 6)),
          path_(support::pattern(n_, 7)),
          map_(device_.map({static_cast<std::int32_t>(c_.tokens)})),
          dropout_{.probability = c_.dropout, .seed = 77, .site = dropout_site(1, 3, 2), .feature_begin = 0} {}

    core::Tensor t(const Doubles& values) { return device_.tensor({c_.tokens, c_.hidden}, values, c_.dtype); }
    core::Tensor row(const Doubles& values) { return device_.tensor({c_.hidden}, values, c_.dtype); }
    core::Tensor out() { return device_.tensor({c_.tokens, c_.hidden}, c_.dtype); }

    Doubles residual_out(const Doubles& x, const Doubles& bias, const Doubles& residual) const {
        Doubles result(residual);
        for (std::size_t i = 0; i < result.size(); ++i) {
            const auto token = static_cast<std::int64_t>(i) / c_.hidden;
            const auto feature = static_cast<std::int64_t>(i) % c_.hidden;
            result[i] += (x[i] + bias[static_cast<std::size_t>(feature)]) *
                         support::keep_scale(dropout_, feature, 100, static_cast<std::int32_t>(token));
        }
        return result;
    }
    /// The loss whose gradients the backward gives: <dy, y> + <path, residual_out>.
    double loss(const Doubles& residual, const Doubles& gamma, const Doubles& beta) const {
        const double direct = support::dot(path_, residual);
        return c_.with_norm ? direct + support::dot(dy_, reference_norm(c_.kind, c_.hidden, residual, gamma, beta))
                            : direct;
    }
    double tolerance() const { return 12 * support::storage_epsilon(c_.dtype) + 4e-6; }

    TestDevice device_;
    Case c_;
    std::int64_t n_;
    Doubles x_, gamma_, beta_, bias_, residual_, dy_, path_;
    TokenMap map_;
    Dropout dropout_;
};

TEST_P(Norm, ForwardMatchesADoubleLoop) {
    core::Tensor gamma = row(gamma_);
    core::Tensor beta = beta_.empty() ? core::Tensor{} : row(beta_);
    if (c_.with_norm) {
        core::Tensor x = t(x_);
        core::Tensor y = out();
        norm_forward(*device_.backend, device_.stream,
                     {.kind = c_.kind,
                      .eps = kEps,
                      .x = x,
                      .gamma = gamma,
                      .beta = beta.defined() ? &beta : nullptr,
                      .y = y});
        support::expect_close(support::doubles(y), reference_norm(c_.kind, c_.hidden, x_, gamma_, beta_), tolerance(),
                              "norm");
        norm_forward(*device_.backend, device_.stream,
                     {.kind = c_.kind,
                      .eps = kEps,
                      .x = x,
                      .gamma = gamma,
                      .beta = beta.defined() ? &beta : nullptr,
                      .y = x});
        EXPECT_EQ(support::doubles(x), support::doubles(y)) << "in place";
    }
    core::Tensor x = t(x_);
    core::Tensor bias = row(bias_);
    core::Tensor residual = t(residual_);
    core::Tensor residual_result = out();
    core::Tensor y = out();
    auto run = [&](core::Tensor& target, core::Tensor& y_target) {
        bias_dropout_residual_norm_forward(*device_.backend, device_.stream,
                                           {.x = x,
                                            .bias = &bias,
                                            .residual = residual,
                                            .dropout = dropout_,
                                            .tokens = map_,
                                            .residual_out = target,
                                            .kind = c_.kind,
                                            .eps = kEps,
                                            .gamma = c_.with_norm ? &gamma : nullptr,
                                            .beta = c_.with_norm && beta.defined() ? &beta : nullptr,
                                            .y = c_.with_norm ? &y_target : nullptr});
    };
    run(residual_result, y);
    const Doubles expected = residual_out(x_, bias_, residual_);
    support::expect_close(support::doubles(residual_result), expected, 4 * support::storage_epsilon(c_.dtype),
                          "residual");
    if (c_.with_norm) {
        support::expect_close(support::doubles(y),
                              reference_norm(c_.kind, c_.hidden, support::doubles(residual_result), gamma_, beta_),
                              tolerance(), "y");
    }
    run(residual, x);  // both in place, as inference does
    EXPECT_EQ(support::doubles(residual), support::doubles(residual_result));
    if (c_.with_norm) {
        EXPECT_EQ(support::doubles(x), support::doubles(y));
    }
    device_.check_guards();
}

TEST_P(Norm, BackwardMatchesCentralDifferences) {
    core::Tensor gamma = row(gamma_);
    core::Tensor residual_result = t(residual_out(x_, bias_, residual_));
    const Doubles at = support::doubles(residual_result);
    core::Tensor y = out();
    core::Tensor mean = device_.tensor({c_.tokens});
    core::Tensor rstd = device_.tensor({c_.tokens});
    const bool layer = c_.kind == NormKind::layer;
    norm_forward(*device_.backend, device_.stream,
                 {.kind = c_.kind,
                  .eps = kEps,
                  .x = residual_result,
                  .gamma = gamma,
                  .y = y,
                  .mean = layer ? &mean : nullptr,
                  .rstd = &rstd});
    core::Tensor dy = t(dy_);
    core::Tensor path = t(path_);
    core::Tensor dresidual = out();
    core::Tensor dx = out();
    core::Tensor dgamma = device_.zeros({c_.hidden});
    core::Tensor dbeta = device_.zeros({c_.hidden});
    core::Tensor dbias = device_.zeros({c_.hidden});
    bias_dropout_residual_norm_backward(*device_.backend, device_.stream,
                                        {.dy = c_.with_norm ? &dy : nullptr,
                                         .dresidual_out = &path,
                                         .dropout = dropout_,
                                         .tokens = map_,
                                         .kind = c_.kind,
                                         .residual_out = c_.with_norm ? &residual_result : nullptr,
                                         .gamma = c_.with_norm ? &gamma : nullptr,
                                         .mean = c_.with_norm && layer ? &mean : nullptr,
                                         .rstd = c_.with_norm ? &rstd : nullptr,
                                         .dresidual = dresidual,
                                         .dx = dx,
                                         .dbias = &dbias,
                                         .dgamma = c_.with_norm ? &dgamma : nullptr,
                                         .dbeta = c_.with_norm && layer ? &dbeta : nullptr});
    const Doubles expected = support::central_differences([&](const Doubles& r) { return loss(r, gamma_, beta_); }, at);
    Doubles through = expected;
    Doubles bias_expected(static_cast<std::size_t>(c_.hidden), 0.0);
    for (std::size_t i = 0; i < through.size(); ++i) {
        const auto feature = static_cast<std::int64_t>(i) % c_.hidden;
        through[i] *= support::keep_scale(dropout_, feature, 100,
                                          static_cast<std::int32_t>(static_cast<std::int64_t>(i) / c_.hidden));
        bias_expected[static_cast<std::size_t>(feature)] += through[i];
    }
    support::expect_close(support::doubles(dresidual), expected, 4 * tolerance(), "dresidual");
    support::expect_close(support::doubles(dx), through, 4 * tolerance(), "dx");
    support::expect_close(support::doubles(dbias), bias_expected, 8 * tolerance(), "dbias");
    if (c_.with_norm) {
        support::expect_close(
                support::doubles(dgamma),
                support::central_differences([&](const Doubles& g) { return loss(at, g, beta_); }, gamma_),
                8 * tolerance(), "dgamma");
        if (layer) {
            support::expect_close(
                    support::doubles(dbeta),
                    support::central_differences([&](const Doubles& b) { return loss(at, gamma_, b); }, beta_),
                    8 * tolerance(), "dbeta");
        }
        // The plain norm is the same without the mask, also in place of dy.
        core::Tensor dgamma2 = device_.zeros({c_.hidden});
        norm_backward(*device_.backend, device_.stream,
                      {.kind = c_.kind,
                       .x = residual_result,
                       .dy = dy,
                       .gamma = gamma,
                       .mean = layer ? &mean : nullptr,
                       .rstd = rstd,
                       .dresidual = &path,
                       .dx = dy,
                       .dgamma = dgamma2});
        EXPECT_EQ(support::doubles(dy), support::doubles(dresidual));
        EXPECT_EQ(support::doubles(dgamma2), support::doubles(dgamma));
    }
    device_.check_guards();
}

INSTANTIATE_TEST_SUITE_P(Cases, Norm, testing::ValuesIn(cases()));

TEST(NormThreads, ParameterGradientsDoNotDependOnThem) {
    support::expect_same_on_any_threads([] {
        TestDevice device;
        const std::int64_t tokens = 257;
        const std::int64_t hidden = 131;
        core::Tensor x = device.tensor({tokens, hidden}, support::pattern(tokens * hidden, 1));
        core::Tensor dy = device.tensor({tokens, hidden}, support::pattern(tokens * hidden, 2));
        core::Tensor gamma = device.tensor({hidden}, support::pattern(hidden, 3));
        core::Tensor y = device.tensor({tokens, hidden});
        core::Tensor mean = device.tensor({tokens});
        core::Tensor rstd = device.tensor({tokens});
        core::Tensor dgamma = device.zeros({hidden});
        core::Tensor dbeta = device.zeros({hidden});
        norm_forward(*device.backend, device.stream, {.x = x, .gamma = gamma, .y = y, .mean = &mean, .rstd = &rstd});
        norm_backward(*device.backend, device.stream,
                      {.x = x,
                       .dy = dy,
                       .gamma = gamma,
                       .mean = &mean,
                       .rstd = rstd,
                       .dx = dy,
                       .dgamma = dgamma,
                       .dbeta = &dbeta});
        return std::vector<Doubles>{support::doubles(y), support::doubles(dy), support::doubles(dgamma),
                                    support::doubles(dbeta)};
    });
}

}  // namespace
}  // namespace tessera::kernels
