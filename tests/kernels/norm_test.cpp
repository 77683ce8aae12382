#include "kernels/norm.h"

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::expect_gradient;
using support::expect_same_bits;
using support::values;
using Values = std::vector<double>;

struct NormSize {
    std::int64_t tokens, hidden;
};

const std::vector<NormSize> kSizes = {{1, 1}, {3, 19}, {5, 76}, {35, 131}, {2, 768}};
const std::vector<NormKind> kKinds = {NormKind::layer, NormKind::rms};
constexpr float kEps = 1e-3F;

std::string describe(const NormSize& s, NormKind kind, DType dtype) {
    return fmt::format("{} {}x{} {}", kind == NormKind::layer ? "layer" : "rms", s.tokens, s.hidden,
                       core::name_of(dtype));
}

struct Moments {
    Values mean, rstd;
};

Moments moments(NormKind kind, const Values& x, std::int64_t hidden) {
    Moments result;
    for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(hidden)) {
        double mean = 0;
        for (std::int64_t i = 0; i < hidden && kind == NormKind::layer; ++i) {
            mean += x[first + static_cast<std::size_t>(i)] / static_cast<double>(hidden);
        }
        double square = 0;
        for (std::int64_t i = 0; i < hidden; ++i) {
            const double centred = x[first + static_cast<std::size_t>(i)] - mean;
            square += centred * centred / static_cast<double>(hidden);
        }
        result.mean.push_back(mean);
        result.rstd.push_back(1.0 / std::sqrt(square + static_cast<double>(kEps)));
    }
    return result;
}

/// y = norm(x); an empty beta is none.
Values normed(NormKind kind, const Values& x, const Values& gamma, const Values& beta) {
    const auto hidden = static_cast<std::int64_t>(gamma.size());
    const Moments m = moments(kind, x, hidden);
    Values y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t token = i / gamma.size();
        const std::size_t feature = i % gamma.size();
        y[i] = (x[i] - m.mean[token]) * m.rstd[token] * gamma[feature] + (beta.empty() ? 0.0 : beta[feature]);
    }
    return y;
}

double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

/// The change of Σ weights·norm(x) within the row of element i only: other rows do not depend on it.
std::function<double(const Values&)> row_objective(NormKind kind, const Values& gamma, const Values& weights) {
    return [=](const Values& x) { return dot(weights, normed(kind, x, gamma, {})); };
}

support::Tolerance tolerance_of(const NormSize& s) {
    // rstd reaches 1/√eps in a row of one element, and multiplies every rounding error.
    return {.terms = static_cast<double>(s.hidden + 8), .magnitude = s.hidden == 1 ? 40.0 : 4.0};
}

class NormTest : public support::KernelTest {
protected:
    template <typename Body>
    void for_cases(const Body& body) {
        for (const NormSize& size : kSizes) {
            for (const NormKind kind : kKinds) {
                for (const DType dtype : support::kFloatingDTypes) body(size, kind, dtype);
            }
        }
    }
    void forward(const NormForwardArgs& args) { norm_forward(device.backend(), device.stream(), args); }
    void backward(const NormBackwardArgs& args) { norm_backward(device.backend(), device.stream(), args); }
};

TEST_F(NormTest, Forward) {
    for_cases([&](const NormSize& s, NormKind kind, DType dtype) {
        const std::string what = describe(s, kind, dtype);
        const bool layer = kind == NormKind::layer;
        Tensor x = device.random({s.tokens, s.hidden}, dtype, 2.0);
        const Tensor gamma = device.random({s.hidden}, dtype);
        const Tensor beta = device.random({s.hidden}, dtype);
        Tensor y = device.make({s.tokens, s.hidden}, dtype);
        Tensor mean = device.make({s.tokens}, DType::f32);
        Tensor rstd = device.make({s.tokens}, DType::f32);
        forward({.kind = kind,
                 .eps = kEps,
                 .x = x,
                 .gamma = gamma,
                 .beta = layer ? &beta : nullptr,
                 .y = y,
                 .mean = layer ? &mean : nullptr,
                 .rstd = &rstd});
        const Moments m = moments(kind, values(x), s.hidden);
        expect_close("y " + what, y, normed(kind, values(x), values(gamma), layer ? values(beta) : Values{}),
                     tolerance_of(s));
        expect_close("rstd " + what, rstd, m.rstd, tolerance_of(s));
        if (layer) expect_close("mean " + what, mean, m.mean, tolerance_of(s));
        forward({.kind = kind, .eps = kEps, .x = x, .gamma = gamma, .beta = layer ? &beta : nullptr, .y = x});
        expect_same_bits("y in place of x " + what, x, y);
    });
}

TEST_F(NormTest, ConstantRowsGiveBeta) {
    const Tensor x = device.filled({2, 19}, DType::f32, 1000.0);
    const Tensor gamma = device.random({19}, DType::f32);
    const Tensor beta = device.random({19}, DType::f32);
    Tensor y = device.make({2, 19}, DType::f32);
    forward({.eps = 1e-5F, .x = x, .gamma = gamma, .beta = &beta, .y = y});
    Values expected = values(beta);
    for (std::size_t i = 0; i < 19; ++i) expected.push_back(expected[i]);
    // A mean of 1000 may round by 6e-5, and rstd = 1/√1e-5 multiplies that.
    expect_close("y", y, expected, {.terms = 1000, .magnitude = 320});
}

TEST_F(NormTest, BackwardAgainstCentralDifferences) {
    for_cases([&](const NormSize& s, NormKind kind, DType dtype) {
        const std::string what = describe(s, kind, dtype);
        const bool layer = kind == NormKind::layer;
        const Tensor x = device.random({s.tokens, s.hidden}, dtype, 2.0);
        const Tensor gamma = device.random({s.hidden}, dtype);
        const Tensor dy = device.random({s.tokens, s.hidden}, dtype);
        const Moments m = moments(kind, values(x), s.hidden);
        Tensor mean = device.make({s.tokens}, DType::f32);
        Tensor rstd = device.make({s.tokens}, DType::f32);
        for (std::int64_t t = 0; t < s.tokens; ++t) {
            support::set_element(mean, t, m.mean[static_cast<std::size_t>(t)]);
            support::set_element(rstd, t, m.rstd[static_cast<std::size_t>(t)]);
        }
        Tensor dx = device.make({s.tokens, s.hidden}, dtype);
        Tensor dgamma = device.random({s.hidden}, DType::f32);
        Tensor dbeta = device.random({s.hidden}, DType::f32);
        const Values dgamma_before = values(dgamma);
        Values dbeta_sum = values(dbeta);
        backward({.kind = kind,
                  .x = x,
                  .dy = dy,
                  .gamma = gamma,
                  .mean = layer ? &mean : nullptr,
                  .rstd = rstd,
                  .dx = dx,
                  .dgamma = dgamma,
                  .dbeta = layer ? &dbeta : nullptr});
        const std::int64_t stride = s.tokens * s.hidden > 500 ? 37 : 1;
        expect_gradient({.what = "dx " + what,
                         .actual = dx,
                         .x = values(x),
                         .objective = row_objective(kind, values(gamma), values(dy)),
                         .tolerance = tolerance_of(s),
                         .stride = stride});
        expect_gradient({.what = "dgamma " + what,
                         .actual = dgamma,
                         .x = values(gamma),
                         .objective = [&](const Values& g) { return dot(values(dy), normed(kind, values(x), g, {})); },
                         .tolerance = {.terms = static_cast<double>(s.tokens + 8), .magnitude = 40},
                         .before = dgamma_before,
                         .stride = stride});
        for (std::int64_t i = 0; i < s.tokens * s.hidden && layer; ++i) {
            dbeta_sum[static_cast<std::size_t>(i % s.hidden)] += support::element(dy, i);
        }
        if (layer) {
            expect_close("dbeta " + what, dbeta, dbeta_sum, {.terms = static_cast<double>(s.tokens + 1)});
        }
    });
}

TEST_F(NormTest, BackwardAddsTheResidualPathAndWorksInPlace) {
    for (const DType dtype : support::kFloatingDTypes) {
        constexpr std::int64_t kTokens = 5;
        constexpr std::int64_t kHidden = 131;
        const Tensor x = device.random({kTokens, kHidden}, dtype, 2.0);
        const Tensor gamma = device.random({kHidden}, dtype);
        Tensor dy = device.random({kTokens, kHidden}, dtype);
        Tensor dresidual = device.random({kTokens, kHidden}, dtype);
        const Tensor rstd = device.random({kTokens}, DType::f32);
        auto run = [&](Tensor& dx, const Tensor* path) {
            Tensor dgamma = device.zeros({kHidden}, DType::f32);
            backward({.kind = NormKind::rms,
                      .x = x,
                      .dy = dy,
                      .gamma = gamma,
                      .rstd = rstd,
                      .dresidual = path,
                      .dx = dx,
                      .dgamma = dgamma});
            return dgamma;
        };
        Tensor plain = device.make({kTokens, kHidden}, dtype);
        Tensor joined = device.make({kTokens, kHidden}, dtype);
        run(plain, nullptr);
        const Tensor dgamma = run(joined, &dresidual);
        Values expected = values(plain);
        const Values path = values(dresidual);
        double largest = 1;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            largest = std::max(largest, std::abs(expected[i]));
            expected[i] += path[i];
        }
        // `plain` was rounded once more than the sum was.
        expect_close("joined", joined, expected,
                     {.terms = 4 + support::roundoff(dtype) / support::roundoff(DType::f32), .magnitude = largest});
        expect_same_bits("dgamma in place of dresidual", run(dresidual, &dresidual), dgamma);
        expect_same_bits("dx in place of dresidual", dresidual, joined);
        run(dy, nullptr);
        expect_same_bits("dx in place of dy", dy, plain);
    }
}

}  // namespace
}  // namespace tessera::kernels
