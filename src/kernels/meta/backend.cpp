#include "kernels/backend.h"

#include <algorithm>

namespace tessera::kernels {
namespace {

// Nothing is computed: shapes were checked and costs counted above the backends.

class MetaMatmul final : public MatmulKernels {
public:
    void linear_forward(const LinearForwardArgs& /*args*/) override {}
    void linear_dgrad(const LinearDgradArgs& /*args*/) override {}
    void linear_wgrad(const LinearWgradArgs& /*args*/) override {}
};

class MetaNorm final : public NormKernels {
public:
    void norm_forward(const NormForwardArgs& /*args*/) override {}
    void norm_backward(const NormBackwardArgs& /*args*/) override {}
    void bias_dropout_residual_norm_forward(const BiasDropoutResidualNormForwardArgs& /*args*/) override {}
    void bias_dropout_residual_norm_backward(const BiasDropoutResidualNormBackwardArgs& /*args*/) override {}
};

class MetaAttention final : public AttentionKernels {
public:
    void rotary(const RotaryArgs& /*args*/) override {}
    void attention_forward(const AttentionForwardArgs& /*args*/) override {}
    void attention_backward(const AttentionBackwardArgs& /*args*/) override {}
    void cached_attention(const CachedAttentionArgs& /*args*/) override {}
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
    MetaBackend(core::MemoryPool& memory, MetaDevice modelled) : Backend(memory), modelled_(modelled) {}

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
