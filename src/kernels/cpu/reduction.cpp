#include "kernels/reduction.h"

#include "kernels/cpu/families.h"
#include "kernels/cpu/flat.h"

namespace tessera::kernels::cpu {
namespace {

using core::Tensor;

class Reduction final : public ReductionKernels {
public:
    void sum_of_squares(const Tensor& x, Tensor& partial) override {
        flat_sum_of_squares(x.data<float>(), x.numel(), partial.data<float>());
    }
    void cast(const Tensor& x, Tensor& y) override { flat_cast(x.bytes(), x.dtype(), y.bytes(), y.dtype(), x.numel()); }
    void scale(Tensor& x, float factor) override { flat_scale(x.bytes(), x.dtype(), x.numel(), factor); }
    void add(const Tensor& x, Tensor& y) override { flat_add(x.bytes(), y.bytes(), x.dtype(), x.numel()); }
    double sum(const Tensor& x) override { return flat_sum(x.data<float>(), x.numel()); }
};

}  // namespace

std::unique_ptr<ReductionKernels> make_reduction() {
    return std::make_unique<Reduction>();
}

}  // namespace tessera::kernels::cpu
