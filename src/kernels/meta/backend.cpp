#include "kernels/backend.h"

#include <omp.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/attention_heads.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/norm_rows.h"

namespace tessera::kernels {
namespace {

// Nothing is computed: shapes were checked and costs counted above the backends. What remains is the workspace that the
// CPU's operations hold while they run, so that the peak counted here is the peak there.

/// f32 blocks taken in order and held until the end of an operation.
class Workspace {
public:
    explicit Workspace(core::MemoryPool& pool) : pool_(pool) {}
    void take(std::int64_t floats) {
        held_.push_back(core::Tensor::empty(pool_, {floats}, core::DType::f32, core::MemoryCategory::workspace));
    }

private:
    core::MemoryPool& pool_;
    std::vector<core::Tensor> held_;
};

class MetaMatmul final : public MatmulKernels {
public:
    explicit MetaMatmul(core::MemoryPool& pool) : pool_(pool) {}

    void linear_forward(const LinearForwardArgs& args) override {
        Workspace workspace(pool_);
        const bool wide = args.x.dtype() != core::DType::f32;
        const bool in_place = args.pre_activation || args.epilogue != Epilogue::swiglu;
        if (wide || !in_place) workspace.take(args.x.size(0) * args.weight.size(0));
        if (!wide) return;
        workspace.take(args.x.numel());
        workspace.take(panel(args.weight));
    }
    void linear_dgrad(const LinearDgradArgs& args) override {
        Workspace workspace(pool_);
        const bool wide = args.dy.dtype() != core::DType::f32;
        if (wide || args.epilogue != Epilogue::none) workspace.take(args.dy.size(0) * args.weight.size(1));
        if (!wide) return;
        workspace.take(args.dy.numel());
        workspace.take(panel(args.weight));
    }
    void linear_wgrad(const LinearWgradArgs& args) override {
        Workspace workspace(pool_);
        if (args.x.dtype() == core::DType::f32) return;
        workspace.take(args.x.numel());
        workspace.take(args.dy.numel());
    }

private:
    static std::int64_t panel(const core::Tensor& weight) {
        return std::min(cpu::kPanelRows, weight.size(0)) * weight.size(1);
    }

    core::MemoryPool& pool_;
};

class MetaNorm final : public NormKernels {
public:
    explicit MetaNorm(core::MemoryPool& pool) : pool_(pool) {}

    void norm_forward(const NormForwardArgs& /*args*/) override {}
    void norm_backward(const NormBackwardArgs& args) override { partial_sums(args.x, args.dbeta ? 2 : 1); }
    void bias_dropout_residual_norm_forward(const BiasDropoutResidualNormForwardArgs& /*args*/) override {}
    void bias_dropout_residual_norm_backward(const BiasDropoutResidualNormBackwardArgs& args) override {
        partial_sums(args.dresidual, (args.dgamma ? 1 : 0) + (args.dbeta ? 1 : 0) + (args.dbias ? 1 : 0));
    }

private:
    /// Of `gradients` parameter gradients over the rows of x.
    void partial_sums(const core::Tensor& x, std::int64_t gradients) {
        const std::int64_t blocks = (x.size(0) + cpu::kNormRowBlock - 1) / cpu::kNormRowBlock;
        if (gradients > 0) Workspace(pool_).take(gradients * blocks * x.size(1));
    }

    core::MemoryPool& pool_;
};

class MetaAttention final : public AttentionKernels {
public:
    explicit MetaAttention(core::MemoryPool& pool) : pool_(pool) {}

    void rotary(const RotaryArgs& /*args*/) override {}
    void attention_forward(const AttentionForwardArgs& args) override {
        Workspace(pool_).take(omp_get_max_threads() *
                              cpu::attention_forward_scratch(args.tokens.max_seqlen, args.heads.head_dim));
    }
    void attention_backward(const AttentionBackwardArgs& args) override {
        Workspace(pool_).take(omp_get_max_threads() *
                              cpu::attention_backward_scratch(args.tokens.max_seqlen, args.heads.head_dim));
    }
    void cached_attention(const CachedAttentionArgs& /*args*/) override {}

private:
    core::MemoryPool& pool_;
};

class MetaEmbedding final : public EmbeddingKernels {
public:
    void embedding_forward(const EmbeddingForwardArgs& /*args*/) override {}
    void embedding_backward(const EmbeddingBackwardArgs& /*args*/) override {}
};

class MetaLoss final : public LossKernels {
public:
    void cross_entropy_statistics(const CrossEntropyStatisticsArgs& /*args*/) override {}
    void cross_entropy_finish(const CrossEntropyFinishArgs& /*args*/) override {}
};

class MetaOptimizer final : public OptimizerKernels {
public:
    void adamw(const AdamWArgs& /*args*/) override {}
};

class MetaReduction final : public ReductionKernels {
public:
    void sum_of_squares(const core::Tensor& /*x*/, core::Tensor& /*partial*/) override {}
    void cast(const core::Tensor& /*x*/, core::Tensor& /*y*/) override {}
    void scale(core::Tensor& /*x*/, float /*factor*/) override {}
    void add(const core::Tensor& /*x*/, core::Tensor& /*y*/) override {}
    /// Finite, and 1 for each element: a fixed script that any run can go on with.
    double sum(const core::Tensor& x) override { return static_cast<double>(x.numel()); }
};

class MetaBackend final : public Backend {
public:
    MetaBackend(core::MemoryPool& memory, MetaDevice modelled)
        : Backend(memory), modelled_(modelled), matmul_(memory), norm_(memory), attention_(memory) {}

    core::DeviceType device() const override { return core::DeviceType::meta; }
    MatmulKernels& matmul() override { return matmul_; }
    NormKernels& norm() override { return norm_; }
    AttentionKernels& attention() override { return attention_; }
    EmbeddingKernels& embedding() override { return embedding_; }
    LossKernels& loss() override { return loss_; }
    OptimizerKernels& optimizer() override { return optimizer_; }
    ReductionKernels& reduction() override { return reduction_; }
    double modelled_seconds(const Cost& cost) const override {
        return std::max(cost.flops / modelled_.peak_flops, cost.bytes / modelled_.bandwidth_bytes_s);
    }
    std::string description() const override {
        return fmt::format("meta: {:.1f} TFLOP/s, {:.1f} GB/s, computes nothing", modelled_.peak_flops / 1e12,
                           modelled_.bandwidth_bytes_s / 1e9);
    }

private:
    MetaDevice modelled_;
    MetaMatmul matmul_;
    MetaNorm norm_;
    MetaAttention attention_;
    MetaEmbedding embedding_;
    MetaLoss loss_;
    MetaOptimizer optimizer_;
    MetaReduction reduction_;
};

}  // namespace

std::unique_ptr<Backend> make_meta_backend(core::MemoryPool& pool, MetaDevice device) {
    TESSERA_INVARIANT(pool.device() == core::DeviceType::meta);
    return std::make_unique<MetaBackend>(pool, device);
}

}  // namespace tessera::kernels
