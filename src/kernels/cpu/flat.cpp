#include "kernels/cpu/flat.h"

#include <numeric>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/reduction.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flat.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr std::int64_t kBlock = 4096;

/// body(begin, end) over blocks of kBlock elements.
template <typename Body>
void for_blocks(std::int64_t count, const Body& body) {
    parallel_for((count + kBlock - 1) / kBlock, kBlock,
                 [&](std::int64_t begin, std::int64_t end) { body(begin * kBlock, std::min(end * kBlock, count)); });
}

void sum_of_squares_all(const float* x, std::int64_t count, float* partial) {
    const std::int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
    parallel_for(blocks, kNormBlock, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t block = begin; block < end; ++block) {
            const float* source = x + block * kNormBlock;
            const std::int64_t size = std::min(kNormBlock, count - block * kNormBlock);
            auto total = hn::Zero(FloatTag());
            for_lanes(size, [&](std::int64_t i, std::int64_t n) {
                const auto v = load_at(source + i, n);
                total = hn::MulAdd(v, v, total);
            });
            partial[block] = sum_lanes(total);
        }
    });
}

void cast_all(const void* x, core::DType from, void* y, core::DType to, std::int64_t count) {
    with_storage(from, [&]<typename From>() {
        with_storage(to, [&]<typename To>() {
            const From* source = static_cast<const From*>(x);
            To* target = static_cast<To*>(y);
            for_blocks(count, [&](std::int64_t begin, std::int64_t end) {
                for_lanes(end - begin, [&](std::int64_t i, std::int64_t n) {
                    store_at(load_at(source + begin + i, n), target + begin + i, n);
                });
            });
        });
    });
}

void scale_all(void* x, core::DType dtype, std::int64_t count, float factor) {
    with_storage(dtype, [&]<typename T>() {
        T* values = static_cast<T*>(x);
        const auto factors = hn::Set(FloatTag(), factor);
        for_blocks(count, [&](std::int64_t begin, std::int64_t end) {
            for_lanes(end - begin, [&](std::int64_t i, std::int64_t n) {
                T* p = values + begin + i;
                store_at(hn::Mul(load_at(p, n), factors), p, n);
            });
        });
    });
}

void add_all(const void* x, void* y, core::DType dtype, std::int64_t count) {
    with_storage(dtype, [&]<typename T>() {
        const T* source = static_cast<const T*>(x);
        T* target = static_cast<T*>(y);
        for_blocks(count, [&](std::int64_t begin, std::int64_t end) {
            for_lanes(end - begin, [&](std::int64_t i, std::int64_t n) {
                T* p = target + begin + i;
                store_at(hn::Add(load_at(p, n), load_at(source + begin + i, n)), p, n);
            });
        });
    });
}

double sum_of_block(const float* x, std::int64_t count) {
    const hn::ScalableTag<double> d;
    const hn::Rebind<float, hn::ScalableTag<double>> narrow;
    const auto step = static_cast<std::int64_t>(hn::Lanes(d));
    hn::Vec<hn::ScalableTag<double>> total[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    std::int64_t i = 0;
    for (; i + 4 * step <= count; i += 4 * step) {
        for (int k = 0; k < 4; ++k) {
            total[k] = hn::Add(total[k], hn::PromoteTo(d, hn::LoadU(narrow, x + i + k * step)));
        }
    }
    const auto all = hn::Add(hn::Add(total[0], total[1]), hn::Add(total[2], total[3]));
    double sum = hn::GetLane(hn::SumOfLanes(d, all));
    for (; i < count; ++i) sum += x[i];
    return sum;
}

void sum_all(const float* x, std::int64_t count, double* partial) {
    parallel_for((count + kNormBlock - 1) / kNormBlock, kNormBlock, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t block = first; block < last; ++block) {
            const std::int64_t begin = block * kNormBlock;
            partial[block] = sum_of_block(x + begin, std::min(kNormBlock, count - begin));
        }
    });
}

template <typename T>
void adamw_range(const FlatAdamW& a, std::int64_t begin, std::int64_t end) {
    const FloatTag d;
    const auto grad_scale = hn::Set(d, a.grad_scale);
    const auto beta1 = hn::Set(d, a.beta1);
    const auto beta2 = hn::Set(d, a.beta2);
    const auto rest1 = hn::Set(d, a.rest1);
    const auto rest2 = hn::Set(d, a.rest2);
    const auto keep = hn::Set(d, a.keep);
    const auto step_size = hn::Set(d, a.step_size);
    const auto inverse_root = hn::Set(d, a.inverse_root);
    const auto eps = hn::Set(d, a.eps);
    T* model = static_cast<T*>(a.model_param);
    for_lanes(end - begin, [&](std::int64_t i, std::int64_t n) {
        const std::int64_t at = begin + i;
        const auto g = hn::Mul(load_at(a.main_grad + at, n), grad_scale);
        const auto m = hn::MulAdd(load_at(a.exp_avg + at, n), beta1, hn::Mul(g, rest1));
        const auto v = hn::MulAdd(load_at(a.exp_avg_sq + at, n), beta2, hn::Mul(hn::Mul(g, g), rest2));
        const auto denominator = hn::MulAdd(hn::Sqrt(v), inverse_root, eps);
        const auto step = hn::Div(hn::Mul(m, step_size), denominator);
        const auto p = hn::Sub(hn::Mul(load_at(a.main_param + at, n), keep), step);
        store_at(m, a.exp_avg + at, n);
        store_at(v, a.exp_avg_sq + at, n);
        store_at(p, a.main_param + at, n);
        if (model) store_at(p, model + at, n);
        if (a.after == GradientAfterStep::zero) store_at(hn::Zero(d), a.main_grad + at, n);
    });
}

void adamw_all(const FlatAdamW& a) {
    with_storage(a.model_dtype, [&]<typename T>() {
        for_blocks(a.count, [&](std::int64_t begin, std::int64_t end) { adamw_range<T>(a, begin, end); });
    });
}

const char* target_name() {
    return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(sum_of_squares_all);
HWY_EXPORT(cast_all);
HWY_EXPORT(scale_all);
HWY_EXPORT(add_all);
HWY_EXPORT(sum_all);
HWY_EXPORT(adamw_all);
HWY_EXPORT(target_name);

void flat_sum_of_squares(const float* x, std::int64_t count, float* partial) {
    HWY_DYNAMIC_DISPATCH(sum_of_squares_all)(x, count, partial);
}
void flat_cast(const void* x, core::DType from, void* y, core::DType to, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(cast_all)(x, from, y, to, count);
}
void flat_scale(void* x, core::DType dtype, std::int64_t count, float factor) {
    HWY_DYNAMIC_DISPATCH(scale_all)(x, dtype, count, factor);
}
void flat_add(const void* x, void* y, core::DType dtype, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(add_all)(x, y, dtype, count);
}
void flat_adamw(const FlatAdamW& args) {
    HWY_DYNAMIC_DISPATCH(adamw_all)(args);
}
const char* vector_target() {
    return HWY_DYNAMIC_DISPATCH(target_name)();
}

double flat_sum(const float* x, std::int64_t count) {
    std::vector<double> partial(static_cast<std::size_t>((count + kNormBlock - 1) / kNormBlock));
    HWY_DYNAMIC_DISPATCH(sum_all)(x, count, partial.data());
    return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace tessera::kernels::cpu
#endif
