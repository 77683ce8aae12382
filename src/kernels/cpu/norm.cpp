#include "kernels/norm.h"

#include "kernels/cpu/families.h"
#include "kernels/cpu/norm_rows.h"

namespace tessera::kernels::cpu {
namespace {

using core::DType;
using core::Tensor;

void* raw(const Tensor* tensor) {
    return tensor ? static_cast<void*>(tensor->bytes()) : nullptr;
}
float* floats(const Tensor* tensor) {
    return tensor ? tensor->data<float>() : nullptr;
}

class Norm final : public NormKernels {
public:
    explicit Norm(core::MemoryPool& pool) : pool_(pool) {}

    void norm_forward(const NormForwardArgs& args) override {
        norm_rows_forward({.dtype = args.x.dtype(),
                           .kind = args.kind,
                           .tokens = args.x.size(0),
                           .hidden = args.x.size(1),
                           .eps = args.eps,
                           .x = args.x.bytes(),
                           .gamma = args.gamma.bytes(),
                           .beta = raw(args.beta),
                           .y = args.y.bytes(),
                           .mean = floats(args.mean),
                           .rstd = floats(args.rstd)});
    }

    void norm_backward(const NormBackwardArgs& args) override {
        NormRowsBackward rows{.dtype = args.x.dtype(),
                              .kind = args.kind,
                              .tokens = args.x.size(0),
                              .hidden = args.x.size(1),
                              .x = args.x.bytes(),
                              .dy = args.dy.bytes(),
                              .gamma = args.gamma.bytes(),
                              .mean = floats(args.mean),
                              .rstd = args.rstd.data<float>(),
                              .dresidual_out = raw(args.dresidual),
                              .dresidual = args.dx.bytes()};
        backward(rows, &args.dgamma, args.dbeta, nullptr);
    }

    void bias_dropout_residual_norm_forward(const BiasDropoutResidualNormForwardArgs& args) override {
        const bool drops = args.dropout.probability > 0;
        norm_rows_forward({.dtype = args.x.dtype(),
                           .kind = args.kind,
                           .tokens = args.x.size(0),
                           .hidden = args.x.size(1),
                           .eps = args.eps,
                           .x = args.x.bytes(),
                           .bias = raw(args.bias),
                           .residual = args.residual.bytes(),
                           .dropout = args.dropout,
                           .sample = drops ? args.tokens.sample.data<std::int64_t>() : nullptr,
                           .offset = drops ? args.tokens.offset.data<std::int32_t>() : nullptr,
                           .residual_out = args.residual_out.bytes(),
                           .gamma = raw(args.gamma),
                           .beta = raw(args.beta),
                           .y = raw(args.y),
                           .mean = floats(args.mean),
                           .rstd = floats(args.rstd)});
    }

    void bias_dropout_residual_norm_backward(const BiasDropoutResidualNormBackwardArgs& args) override {
        const bool drops = args.dropout.probability > 0;
        NormRowsBackward rows{.dtype = args.dresidual.dtype(),
                              .kind = args.kind,
                              .tokens = args.dresidual.size(0),
                              .hidden = args.dresidual.size(1),
                              .x = raw(args.residual_out),
                              .dy = raw(args.dy),
                              .gamma = raw(args.gamma),
                              .mean = floats(args.mean),
                              .rstd = floats(args.rstd),
                              .dresidual_out = raw(args.dresidual_out),
                              .dresidual = args.dresidual.bytes(),
                              .dx = args.dx.bytes(),
                              .dropout = args.dropout,
                              .sample = drops ? args.tokens.sample.data<std::int64_t>() : nullptr,
                              .offset = drops ? args.tokens.offset.data<std::int32_t>() : nullptr};
        backward(rows, args.dgamma, args.dbeta, args.dbias);
    }

private:
    /// Runs the rows with partial sums for each wanted parameter gradient, then adds the sums in order.
    void backward(NormRowsBackward& rows, Tensor* dgamma, Tensor* dbeta, Tensor* dbias) {
        const std::int64_t blocks = (rows.tokens + kNormRowBlock - 1) / kNormRowBlock;
        const std::int64_t wanted = (dgamma ? 1 : 0) + (dbeta ? 1 : 0) + (dbias ? 1 : 0);
        Tensor partial;
        float* next = nullptr;
        if (wanted > 0) {
            partial = Tensor::empty(pool_, {wanted, blocks, rows.hidden}, DType::f32, core::MemoryCategory::workspace);
            next = partial.data<float>();
        }
        auto reserve = [&](const Tensor* gradient) {
            float* begin = gradient ? next : nullptr;
            if (gradient) next += blocks * rows.hidden;
            return begin;
        };
        rows.dgamma_blocks = reserve(dgamma);
        rows.dbeta_blocks = reserve(dbeta);
        rows.dbias_blocks = reserve(dbias);
        norm_rows_backward(rows);
        if (dgamma) add_blocks(rows.dgamma_blocks, blocks, rows.hidden, dgamma->data<float>());
        if (dbeta) add_blocks(rows.dbeta_blocks, blocks, rows.hidden, dbeta->data<float>());
        if (dbias) add_blocks(rows.dbias_blocks, blocks, rows.hidden, dbias->data<float>());
    }

    core::MemoryPool& pool_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm(core::MemoryPool& pool) {
    return std::make_unique<Norm>(pool);
}

}  // namespace tessera::kernels::cpu
