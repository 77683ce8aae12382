#include "parallel/reduction_tree.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "core/error.h"

namespace tessera::parallel {
namespace {

constexpr std::int64_t kBlock = 1024;

template <typename T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, T, float>;

template <typename T>
Accumulator<T> widened(T value) {
    if constexpr (std::is_integral_v<T>) {
        return value;
    } else {
        return core::to_f32(value);
    }
}

template <typename A>
A combined(A a, A b, ReduceOp op) {
    if (op == ReduceOp::sum) return a + b;
    return a > b || a != a ? a : b;
}

/// The subtree of ranks [begin, end) over one block.
template <typename T>
void reduce_block(ReduceOp op, std::span<const std::byte* const> inputs, int begin, int end, std::int64_t at,
                  std::int64_t n, Accumulator<T>* out) {
    if (end - begin == 1) {
        const T* in = reinterpret_cast<const T*>(inputs[static_cast<std::size_t>(begin)]) + at;
        for (std::int64_t i = 0; i < n; ++i) out[i] = widened(in[i]);
        return;
    }
    const int middle = tree_split(begin, end);
    reduce_block<T>(op, inputs, begin, middle, at, n, out);
    std::array<Accumulator<T>, kBlock> right;
    reduce_block<T>(op, inputs, middle, end, at, n, right.data());
    for (std::int64_t i = 0; i < n; ++i) out[i] = combined(out[i], right[static_cast<std::size_t>(i)], op);
}

template <typename T>
void reduce_all(ReduceOp op, std::span<const std::byte* const> inputs, std::byte* output, std::int64_t count) {
    T* result = reinterpret_cast<T*>(output);
    std::array<Accumulator<T>, kBlock> sum;
    for (std::int64_t at = 0; at < count; at += kBlock) {
        const std::int64_t n = std::min(kBlock, count - at);
        reduce_block<T>(op, inputs, 0, static_cast<int>(inputs.size()), at, n, sum.data());
        for (std::int64_t i = 0; i < n; ++i) {
            if constexpr (std::is_integral_v<T>) {
                result[at + i] = sum[static_cast<std::size_t>(i)];
            } else {
                result[at + i] = core::from_f32<T>(sum[static_cast<std::size_t>(i)]);
            }
        }
    }
}

}  // namespace

int tree_split(int begin, int end) {
    TESSERA_INVARIANT(end - begin > 1);
    return begin + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
}

void reduce_in_tree_order(core::DType dtype, ReduceOp op, std::span<const std::byte* const> inputs, std::byte* output,
                          std::int64_t count) {
    switch (dtype) {
        case core::DType::f32:
            return reduce_all<float>(op, inputs, output, count);
        case core::DType::bf16:
            return reduce_all<core::bf16>(op, inputs, output, count);
        case core::DType::f16:
            return reduce_all<core::f16>(op, inputs, output, count);
        case core::DType::i32:
            return reduce_all<std::int32_t>(op, inputs, output, count);
        case core::DType::i64:
            return reduce_all<std::int64_t>(op, inputs, output, count);
        case core::DType::u16:
            break;
    }
    TESSERA_INVARIANT(!"u16 is refused before");
}

}  // namespace tessera::parallel
