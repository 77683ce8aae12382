#pragma once
#include <memory>
#include <string>

#include "core/memory.h"
#include "core/stream.h"
#include "kernels/attention.h"
#include "kernels/cost.h"
#include "kernels/embedding.h"
#include "kernels/loss.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduction.h"

namespace tessera::kernels {

/// One implementation of every family of operations on one device. A backend that forgets an operation does not
/// compile.
class Backend {
public:
    virtual ~Backend() = default;

    virtual core::DeviceType device() const = 0;
    virtual MatmulKernels& matmul() = 0;
    virtual NormKernels& norm() = 0;
    virtual AttentionKernels& attention() = 0;
    virtual EmbeddingKernels& embedding() = 0;
    virtual LossKernels& loss() = 0;
    virtual OptimizerKernels& optimizer() = 0;
    virtual ReductionKernels& reduction() = 0;

    /// Seconds that an operation of this cost is expected to take; meta advances the stream's clock by it. 0 elsewhere.
    virtual double modelled_seconds(const Cost& cost) const = 0;
    /// Name and versions of what computes ("cpu: oneDNN 2.6.3, Highway AVX2, 2 threads"): saved with a run.
    virtual std::string description() const = 0;

    core::MemoryPool& pool() { return *pool_; }
    OpAccount& account() { return account_; }

protected:
    explicit Backend(core::MemoryPool& pool) : pool_(&pool) {}

private:
    core::MemoryPool* pool_;
    OpAccount account_;
};

/// Checks the pool's device. cpu: OpenMP threads as set by the caller (omp_set_num_threads).
std::unique_ptr<Backend> make_cpu_backend(core::MemoryPool& pool);

/// What the modelled device can do; meta's clock follows max(flops / peak_flops, bytes / bandwidth).
struct MetaDevice {
    double peak_flops = 1e12;
    double bandwidth_bytes_s = 1e11;
};
std::unique_ptr<Backend> make_meta_backend(core::MemoryPool& pool, MetaDevice device);

}  // namespace tessera::kernels
