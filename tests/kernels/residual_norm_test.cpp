// bias_dropout_residual_norm, forward and backward.
#include "kernels/norm.h"
#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::expect_same_bits;
using support::values;
using Values = std::vector<double>;

struct ResidualCase {
    std::int64_t tokens, hidden;
    NormKind kind;
    float probability;
    bool has_bias, has_gamma;
    std::string name(DType dtype) const {
        return fmt::format("{}x{} {} p={} bias={} gamma={} {}", tokens, hidden,
                           kind == NormKind::layer ? "layer" : "rms", probability, has_bias, has_gamma,
                           core::name_of(dtype));
    }
};

std::vector<ResidualCase> cases() {
    std::vector<ResidualCase> all;
    for (const auto& [tokens, hidden] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 19}, {5, 76}, {35, 131}}) {
        for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
            for (const float probability : {0.0F, 0.3F}) {
                for (const int choice : {0, 1, 2, 3}) {
                    all.push_back({tokens, hidden, kind, probability, (choice & 1) != 0, (choice & 2) != 0});
                }
            }
        }
    }
    return all;
}

constexpr float kEps = 1e-3F;

Dropout dropout_of(const ResidualCase& c) {
    return {.probability = c.probability, .seed = 0x123456789ABCDEFULL, .site = dropout_site(1, 3, 2)};
}

class ResidualNormTest : public support::KernelTest {
protected:
    void forward(const BiasDropoutResidualNormForwardArgs& args) {
        bias_dropout_residual_norm_forward(device.backend(), device.stream(), args);
    }
    void backward(const BiasDropoutResidualNormBackwardArgs& args) {
        bias_dropout_residual_norm_backward(device.backend(), device.stream(), args);
    }
    /// Tokens of one sample beyond 2^32, so that the high half of its index counts.
    TokenMap tokens(std::int64_t count) {
        return support::token_map(device,
                                  {{.sample = 5'000'000'011, .offset = 7, .length = static_cast<std::int32_t>(count)}},
                                  0, count + 7);
    }
    static double factor(const Dropout& dropout, std::int64_t token, std::int64_t feature) {
        return support::dropout_factor(dropout, 5'000'000'011, 7 + token, dropout.feature_begin + feature);
    }
};

/// y and the gradient of Σ dy·y with respect to one row, in double.
struct RowNorm {
    NormKind kind;
    double mean = 0, rstd = 0;
    RowNorm(NormKind norm_kind, const double* x, std::int64_t hidden) : kind(norm_kind) {
        const auto count = static_cast<double>(hidden);
        for (std::int64_t i = 0; i < hidden && kind == NormKind::layer; ++i) mean += x[i] / count;
        double square = 0;
        for (std::int64_t i = 0; i < hidden; ++i) square += (x[i] - mean) * (x[i] - mean) / count;
        rstd = 1.0 / std::sqrt(square + static_cast<double>(kEps));
    }
};

TEST_F(ResidualNormTest, Forward) {
    for (const ResidualCase& c : cases()) {
        for (const DType dtype : support::kFloatingDTypes) {
            const TokenMap map = tokens(c.tokens);
            const Dropout dropout = dropout_of(c);
            Tensor x = device.random({c.tokens, c.hidden}, dtype);
            const Tensor bias = device.random({c.hidden}, dtype);
            Tensor residual = device.random({c.tokens, c.hidden}, dtype);
            const Tensor gamma = device.random({c.hidden}, dtype);
            const Tensor beta = device.random({c.hidden}, dtype);
            Tensor out = device.make({c.tokens, c.hidden}, dtype);
            Tensor y = device.make({c.tokens, c.hidden}, dtype);
            Tensor mean = device.make({c.tokens}, DType::f32);
            Tensor rstd = device.make({c.tokens}, DType::f32);
            const bool layer = c.kind == NormKind::layer;
            auto run = [&](const Tensor& input, const Tensor& path, Tensor& sum, Tensor& result) {
                forward({.x = input,
                         .bias = c.has_bias ? &bias : nullptr,
                         .residual = path,
                         .dropout = dropout,
                         .tokens = map,
                         .residual_out = sum,
                         .kind = c.kind,
                         .eps = kEps,
                         .gamma = c.has_gamma ? &gamma : nullptr,
                         .beta = c.has_gamma && layer ? &beta : nullptr,
                         .y = c.has_gamma ? &result : nullptr,
                         .mean = c.has_gamma && layer ? &mean : nullptr,
                         .rstd = c.has_gamma ? &rstd : nullptr});
            };
            run(x, residual, out, y);
            Values sum(static_cast<std::size_t>(c.tokens * c.hidden));
            for (std::int64_t i = 0; i < c.tokens * c.hidden; ++i) {
                const std::int64_t feature = i % c.hidden;
                const double input = support::element(x, i) + (c.has_bias ? support::element(bias, feature) : 0.0);
                sum[static_cast<std::size_t>(i)] =
                        support::element(residual, i) + input * factor(dropout, i / c.hidden, feature);
            }
            expect_close("residual_out " + c.name(dtype), out, sum, {.terms = 4, .magnitude = 4});
            if (c.has_gamma) {
                Values expected = values(out);  // the norm reads the rounded sum
                for (std::int64_t t = 0; t < c.tokens; ++t) {
                    double* row = expected.data() + t * c.hidden;
                    const RowNorm norm(c.kind, row, c.hidden);
                    for (std::int64_t i = 0; i < c.hidden; ++i) {
                        row[i] = (row[i] - norm.mean) * norm.rstd * support::element(gamma, i) +
                                 (layer ? support::element(beta, i) : 0.0);
                    }
                }
                expect_close("y " + c.name(dtype), y, expected,
                             {.terms = static_cast<double>(c.hidden + 8), .magnitude = c.hidden == 1 ? 40.0 : 4.0});
            }
            // residual_out in place of the residual, y in place of x.
            Tensor sum_in_place = device.copy_of(residual);
            Tensor y_in_place = device.copy_of(x);
            run(y_in_place, sum_in_place, sum_in_place, y_in_place);
            expect_same_bits("residual_out in place " + c.name(dtype), sum_in_place, out);
            if (c.has_gamma) expect_same_bits("y in place " + c.name(dtype), y_in_place, y);
            run(x, residual, x, y);
            expect_same_bits("residual_out in place of x " + c.name(dtype), x, out);
        }
    }
}

/// Operands of one backward call and what it has to give, in double.
struct BackwardCase {
    Tensor sum, dy, dresidual_out, gamma, mean, rstd;
    Values dresidual, dx, dbias, dgamma, dbeta;
};

BackwardCase make_backward(support::Device& device, const ResidualCase& c, DType dtype, bool has_path,
                           const std::function<double(std::int64_t, std::int64_t)>& factor) {
    BackwardCase b;
    b.sum = device.random({c.tokens, c.hidden}, dtype, 2.0);
    b.dy = device.random({c.tokens, c.hidden}, dtype);
    b.dresidual_out = device.random({c.tokens, c.hidden}, dtype);
    b.gamma = device.random({c.hidden}, dtype);
    b.mean = device.make({c.tokens}, DType::f32);
    b.rstd = device.make({c.tokens}, DType::f32);
    b.dresidual = has_path ? values(b.dresidual_out) : Values(static_cast<std::size_t>(c.tokens * c.hidden));
    b.dx.resize(b.dresidual.size());
    for (Values* sums : {&b.dbias, &b.dgamma, &b.dbeta}) sums->resize(static_cast<std::size_t>(c.hidden), 1.0);
    const Values x = values(b.sum);
    const Values dy = values(b.dy);
    const Values gamma = values(b.gamma);
    const auto count = static_cast<double>(c.hidden);
    for (std::int64_t t = 0; t < c.tokens; ++t) {
        const RowNorm norm(c.kind, x.data() + t * c.hidden, c.hidden);
        support::set_element(b.mean, t, norm.mean);
        support::set_element(b.rstd, t, norm.rstd);
        double mean_g = 0;
        double mean_gx = 0;
        for (std::int64_t i = 0; i < c.hidden; ++i) {
            const auto at = static_cast<std::size_t>(t * c.hidden + i);
            const double g = dy[at] * gamma[static_cast<std::size_t>(i)];
            mean_g += c.kind == NormKind::layer ? g / count : 0.0;
            mean_gx += g * (x[at] - norm.mean) * norm.rstd / count;
        }
        for (std::int64_t i = 0; i < c.hidden; ++i) {
            const auto at = static_cast<std::size_t>(t * c.hidden + i);
            const auto feature = static_cast<std::size_t>(i);
            const double normed = (x[at] - norm.mean) * norm.rstd;
            if (c.has_gamma) {
                b.dresidual[at] += (dy[at] * gamma[feature] - mean_g - normed * mean_gx) * norm.rstd;
                b.dgamma[feature] += dy[at] * normed;
                b.dbeta[feature] += dy[at];
            }
            b.dx[at] = b.dresidual[at] * factor(t, i);
            b.dbias[feature] += b.dx[at];
        }
    }
    return b;
}

TEST_F(ResidualNormTest, Backward) {
    for (const ResidualCase& c : cases()) {
        for (const DType dtype : support::kFloatingDTypes) {
            for (const bool has_path : {true, false}) {
                if (!has_path && !c.has_gamma) continue;
                const Dropout dropout = dropout_of(c);
                const TokenMap map = tokens(c.tokens);
                const BackwardCase b = make_backward(device, c, dtype, has_path, [&](std::int64_t t, std::int64_t i) {
                    return factor(dropout, t, i);
                });
                const bool layer = c.kind == NormKind::layer;
                auto run = [&](const Tensor& dy, const Tensor& path, Tensor& dresidual, Tensor& dx) {
                    std::vector<Tensor> sums;
                    for (int i = 0; i < 3; ++i) sums.push_back(device.filled({c.hidden}, DType::f32, 1.0));
                    backward({.dy = c.has_gamma ? &dy : nullptr,
                              .dresidual_out = has_path ? &path : nullptr,
                              .dropout = dropout,
                              .tokens = map,
                              .kind = c.kind,
                              .residual_out = c.has_gamma ? &b.sum : nullptr,
                              .gamma = c.has_gamma ? &b.gamma : nullptr,
                              .mean = c.has_gamma && layer ? &b.mean : nullptr,
                              .rstd = c.has_gamma ? &b.rstd : nullptr,
                              .dresidual = dresidual,
                              .dx = dx,
                              .dbias = c.has_bias ? &sums[0] : nullptr,
                              .dgamma = c.has_gamma ? &sums[1] : nullptr,
                              .dbeta = c.has_gamma && layer ? &sums[2] : nullptr});
                    return sums;
                };
                Tensor dresidual = device.make({c.tokens, c.hidden}, dtype);
                Tensor dx = device.make({c.tokens, c.hidden}, dtype);
                const std::vector<Tensor> sums = run(b.dy, b.dresidual_out, dresidual, dx);
                const double magnitude = c.hidden == 1 ? 40.0 : 4.0;
                const support::Tolerance row{.terms = static_cast<double>(c.hidden + 8), .magnitude = magnitude};
                const support::Tolerance column{.terms = static_cast<double>(c.tokens + c.hidden + 8),
                                                .magnitude = magnitude};
                const std::string name = c.name(dtype) + (has_path ? "" : " no path");
                expect_close("dresidual " + name, dresidual, b.dresidual, row);
                expect_close("dx " + name, dx, b.dx, row);
                if (c.has_bias) expect_close("dbias " + name, sums[0], b.dbias, column);
                if (c.has_gamma) expect_close("dgamma " + name, sums[1], b.dgamma, column);
                if (c.has_gamma && layer) expect_close("dbeta " + name, sums[2], b.dbeta, column);

                Tensor path_in_place = device.copy_of(b.dresidual_out);
                Tensor dy_in_place = device.copy_of(b.dy);
                run(dy_in_place, path_in_place, path_in_place, dy_in_place);
                if (has_path) expect_same_bits("dresidual in place of dresidual_out " + name, path_in_place, dresidual);
                expect_same_bits("dx in place of dy " + name, dy_in_place, dx);
                Tensor dy_copy = device.copy_of(b.dy);
                run(dy_copy, b.dresidual_out, dy_copy, dx);
                expect_same_bits("dresidual in place of dy " + name, dy_copy, dresidual);
                if (c.probability == 0) {
                    Tensor both = device.make({c.tokens, c.hidden}, dtype);
                    run(b.dy, b.dresidual_out, both, both);
                    expect_same_bits("dx and dresidual in one " + name, both, dresidual);
                }
            }
        }
    }
}

}  // namespace
}  // namespace tessera::kernels
