#include "kernels/matmul.h"

#include "kernels/cpu/families.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/linear_epilogue.h"
#include "kernels/cpu/packed_gemm.h"

namespace tessera::kernels::cpu {
namespace {

using core::DType;
using core::Tensor;

void* raw(const Tensor* tensor) {
    return tensor ? static_cast<void*>(tensor->bytes()) : nullptr;
}

class Matmul final : public MatmulKernels {
public:
    explicit Matmul(core::MemoryPool& pool) : pool_(pool) {}

    void linear_forward(const LinearForwardArgs& args) override {
        const std::int64_t tokens = args.x.size(0);
        const std::int64_t inputs = args.x.size(1);
        const std::int64_t outputs = args.weight.size(0);
        const bool f32 = args.x.dtype() == DType::f32;
        Tensor buffer;
        float* product = nullptr;
        if (f32 && args.pre_activation) {
            product = args.pre_activation->data<float>();
        } else if (f32 && args.epilogue != Epilogue::swiglu) {
            product = args.y.data<float>();
        } else {
            buffer = workspace(tokens * outputs);
            product = buffer.data<float>();
        }
        if (tokens > 0 && tokens <= kFewRows) {
            const Tensor x = f32 ? args.x : widened(args.x);
            few_rows_product({.rows = tokens,
                              .inputs = inputs,
                              .outputs = outputs,
                              .x = x.data<float>(),
                              .dtype = args.weight.dtype(),
                              .weight = args.weight.bytes(),
                              .product = product});
        } else {
            forward_product(args, product);
        }
        if (f32 && args.epilogue == Epilogue::none) return;
        forward_epilogue({.epilogue = args.epilogue,
                          .dtype = args.x.dtype(),
                          .rows = tokens,
                          .outputs = outputs,
                          .product = product,
                          .bias = raw(args.bias),
                          .pre_activation = raw(args.pre_activation),
                          .y = args.y.bytes()});
    }

    void linear_dgrad(const LinearDgradArgs& args) override {
        const std::int64_t tokens = args.dy.size(0);
        const std::int64_t outputs = args.dy.size(1);
        const std::int64_t inputs = args.weight.size(1);
        const bool f32 = args.dy.dtype() == DType::f32;
        const bool direct = f32 && args.epilogue == Epilogue::none;
        Tensor buffer;
        if (!direct) buffer = workspace(tokens * inputs);
        float* product = direct ? args.dx.data<float>() : buffer.data<float>();
        if (f32) {
            multiply({.m = tokens,
                      .n = inputs,
                      .k = outputs,
                      .a = args.dy.data<float>(),
                      .lda = outputs,
                      .b = args.weight.data<float>(),
                      .ldb = inputs,
                      .beta = direct && args.accumulate ? 1.0F : 0.0F,
                      .c = product,
                      .ldc = inputs});
            if (direct) return;
        } else {
            const Tensor dy = widened(args.dy);
            for_panels(args.weight, [&](std::int64_t begin, std::int64_t rows, const float* panel) {
                multiply({.m = tokens,
                          .n = inputs,
                          .k = rows,
                          .a = dy.data<float>() + begin,
                          .lda = outputs,
                          .b = panel,
                          .ldb = inputs,
                          .beta = begin > 0 ? 1.0F : 0.0F,
                          .c = product,
                          .ldc = inputs});
            });
        }
        backward_epilogue({.epilogue = args.epilogue,
                           .dtype = args.dy.dtype(),
                           .rows = tokens,
                           .inputs = inputs,
                           .product = product,
                           .pre_activation = raw(args.pre_activation),
                           .dx = args.dx.bytes(),
                           .accumulate = args.accumulate});
    }

    void linear_wgrad(const LinearWgradArgs& args) override {
        const std::int64_t tokens = args.x.size(0);
        const std::int64_t inputs = args.x.size(1);
        const std::int64_t outputs = args.dy.size(1);
        const bool f32 = args.x.dtype() == DType::f32;
        const Tensor x = f32 ? args.x : widened(args.x);
        const Tensor dy = f32 ? args.dy : widened(args.dy);
        gemm({.a_transpose = Transpose::yes,
              .m = outputs,
              .n = inputs,
              .k = tokens,
              .a = dy.data<float>(),
              .lda = outputs,
              .b = x.data<float>(),
              .ldb = inputs,
              .beta = 1,
              .c = args.dweight.data<float>(),
              .ldc = inputs});
        if (args.dbias) add_column_sums(args.dy.bytes(), args.dy.dtype(), tokens, outputs, args.dbias->data<float>());
    }

private:
    void forward_product(const LinearForwardArgs& args, float* product) {
        const std::int64_t tokens = args.x.size(0);
        const std::int64_t inputs = args.x.size(1);
        const std::int64_t outputs = args.weight.size(0);
        if (args.x.dtype() == DType::f32) {
            gemm({.b_transpose = Transpose::yes,
                  .m = tokens,
                  .n = outputs,
                  .k = inputs,
                  .a = args.x.data<float>(),
                  .lda = inputs,
                  .b = args.weight.data<float>(),
                  .ldb = inputs,
                  .c = product,
                  .ldc = outputs});
        } else {
            const Tensor x = widened(args.x);
            for_panels(args.weight, [&](std::int64_t begin, std::int64_t rows, const float* panel) {
                gemm({.b_transpose = Transpose::yes,
                      .m = tokens,
                      .n = rows,
                      .k = inputs,
                      .a = x.data<float>(),
                      .lda = inputs,
                      .b = panel,
                      .ldb = inputs,
                      .c = product + begin,
                      .ldc = outputs});
            });
        }
    }

    Tensor workspace(std::int64_t count) {
        return Tensor::empty(pool_, {count}, DType::f32, core::MemoryCategory::workspace);
    }

    void multiply(const GemmArgs& args) {
        const std::int64_t floats = packing_floats(args);
        if (floats == 0) {
            gemm(args);
            return;
        }
        const Tensor scratch = workspace(floats);
        packed_gemm(args, scratch.data<float>());
    }

    Tensor widened(const Tensor& tensor) {
        const Tensor wide = workspace(tensor.numel());
        widen(tensor.bytes(), tensor.dtype(), tensor.numel(), wide.data<float>());
        return wide;
    }

    /// Calls use(first row, rows, f32 panel) for panels of a 16-bit weight [rows, columns].
    template <typename Use>
    void for_panels(const Tensor& weight, const Use& use) {
        const std::int64_t columns = weight.size(1);
        const Tensor panel = workspace(std::min(kPanelRows, weight.size(0)) * columns);
        for (std::int64_t begin = 0; begin < weight.size(0); begin += kPanelRows) {
            const std::int64_t rows = std::min(kPanelRows, weight.size(0) - begin);
            const Tensor part = weight.range(begin, begin + rows);
            widen(part.bytes(), part.dtype(), part.numel(), panel.data<float>());
            use(begin, rows, panel.data<float>());
        }
    }

    core::MemoryPool& pool_;
};

}  // namespace

std::unique_ptr<MatmulKernels> make_matmul(core::MemoryPool& pool) {
    return std::make_unique<Matmul>(pool);
}

}  // namespace tessera::kernels::cpu
