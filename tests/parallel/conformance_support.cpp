#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "parallel/conformance.h"
#include "parallel/reduction_tree.h"

namespace tessera::parallel::test {
namespace {

using core::MemoryPool;
using core::Tensor;

const std::vector<std::int64_t> kSizes = {0, 1, 2, 3, 5, 17, 1000, 4099};

Tensor make(MemoryPool& pool, std::int64_t count, core::DType dtype) {
    return Tensor::zeros(pool, {count}, dtype, core::MemoryCategory::buffers);
}

template <typename T>
T converted(double value) {
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(value);
    } else {
        return core::from_f32<T>(static_cast<float>(value));
    }
}

/// Of many magnitudes, so that the order of a sum shows in its bits.
template <typename T>
T value_of(int rank, std::int64_t i) {
    const auto k = static_cast<double>((i * 31 + rank * 17) % 101) - 50.0;
    if constexpr (std::is_integral_v<T>) return static_cast<T>(k * 1000 + rank);
    return converted<T>(k * std::pow(3.0, static_cast<double>((i + 2 * rank) % 7) - 3.0));
}

template <typename T>
void fill(const Tensor& tensor, int rank, std::int64_t first = 0) {
    for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<T>()[i] = value_of<T>(rank, first + i);
}

template <typename T>
auto bits_of(T value) {
    if constexpr (sizeof(T) == 2) {
        return std::bit_cast<std::uint16_t>(value);
    } else if constexpr (sizeof(T) == 4) {
        return std::bit_cast<std::uint32_t>(value);
    } else {
        return static_cast<std::uint64_t>(value);
    }
}

template <typename T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, T, float>;

template <typename T>
Accumulator<T> widened(T value) {
    if constexpr (std::is_integral_v<T>)
        return value;
    else
        return core::to_f32(value);
}

/// The sum or maximum over ranks [begin, end) by the definition: a tree whose left half is the largest power of two.
template <typename T>
Accumulator<T> reduced(int begin, int end, std::int64_t i, ReduceOp op) {
    if (end - begin == 1) return widened(value_of<T>(begin, i));
    int left = 1;
    while (2 * left < end - begin) left *= 2;
    const Accumulator<T> a = reduced<T>(begin, begin + left, i, op);
    const Accumulator<T> b = reduced<T>(begin + left, end, i, op);
    return op == ReduceOp::sum ? a + b : std::max(a, b);
}

template <typename T>
T expected(int size, std::int64_t i, ReduceOp op) {
    const Accumulator<T> sum = reduced<T>(0, size, i, op);
    if constexpr (std::is_integral_v<T>)
        return sum;
    else
        return core::from_f32<T>(sum);
}

template <typename Body>
void for_dtypes(const Body& body) {
    body.template operator()<float>();
    body.template operator()<core::bf16>();
    body.template operator()<core::f16>();
    body.template operator()<std::int32_t>();
    body.template operator()<std::int64_t>();
}

template <typename T, typename Wanted>
void expect_elements(const Tensor& tensor, const char* what, const Wanted& wanted) {
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
        ASSERT_EQ(bits_of(tensor.data<T>()[i]), bits_of(wanted(i)))
                << what << " of " << core::name_of(tensor.dtype()) << ", element " << i << " of " << tensor.numel();
    }
}

}  // namespace

void expect_all_reduces(Communicator& group, MemoryPool& pool) {
    for_dtypes([&]<typename T>() {
        for (const std::int64_t count : kSizes) {
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
                const Tensor tensor = make(pool, count, core::DTypeOf<T>::value);
                fill<T>(tensor, group.rank());
                group.all_reduce(tensor, op, Purpose::gradients).synchronize();
                expect_elements<T>(tensor, "all_reduce",
                                   [&](std::int64_t i) { return expected<T>(group.size(), i, op); });
            }
        }
    });
    // A maximum with a NaN is NaN on every rank: an overflow anywhere is seen everywhere.
    const Tensor one = make(pool, 1, core::DType::f32);
    one.data<float>()[0] = group.rank() == group.size() - 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
    group.all_reduce(one, ReduceOp::max, Purpose::norm).synchronize();
    EXPECT_TRUE(std::isnan(one.data<float>()[0]));
}

void expect_reduce_scatters(Communicator& group, MemoryPool& pool) {
    for_dtypes([&]<typename T>() {
        for (const std::int64_t count : kSizes) {
            const Tensor input = make(pool, count * group.size(), core::DTypeOf<T>::value);
            fill<T>(input, group.rank());
            const Tensor output = make(pool, count, core::DTypeOf<T>::value);
            group.reduce_scatter(input, output, ReduceOp::sum, Purpose::gradients).synchronize();
            const auto wanted = [&](std::int64_t i) {
                return expected<T>(group.size(), group.rank() * count + i, ReduceOp::sum);
            };
            expect_elements<T>(output, "reduce_scatter", wanted);
            expect_elements<T>(input, "reduce_scatter's input",
                               [&](std::int64_t i) { return value_of<T>(group.rank(), i); });
            if (count == 0) continue;
            // Into the own part of the input.
            const Tensor inside = input.range(group.rank() * count, (group.rank() + 1) * count);
            group.reduce_scatter(input, inside, ReduceOp::sum, Purpose::gradients).synchronize();
            expect_elements<T>(inside, "reduce_scatter in place", wanted);
        }
    });
}

void expect_all_gathers(Communicator& group, MemoryPool& pool) {
    for_dtypes([&]<typename T>() {
        for (const std::int64_t count : kSizes) {
            const Tensor input = make(pool, count, core::DTypeOf<T>::value);
            fill<T>(input, group.rank());
            const Tensor output = make(pool, count * group.size(), core::DTypeOf<T>::value);
            const auto wanted = [&](std::int64_t i) { return value_of<T>(static_cast<int>(i / count), i % count); };
            group.all_gather(input, output, Purpose::parameters).synchronize();
            expect_elements<T>(output, "all_gather", wanted);
            if (count == 0) continue;
            const Tensor inside = make(pool, count * group.size(), core::DTypeOf<T>::value);
            const Tensor own = inside.range(group.rank() * count, (group.rank() + 1) * count);
            fill<T>(own, group.rank());
            group.all_gather(own, inside, Purpose::parameters).synchronize();
            expect_elements<T>(inside, "all_gather in place", wanted);
        }
    });
}

void expect_broadcasts(Communicator& group, MemoryPool& pool) {
    for_dtypes([&]<typename T>() {
        for (const std::int64_t count : kSizes) {
            for (int root = 0; root < group.size(); ++root) {
                const Tensor tensor = make(pool, count, core::DTypeOf<T>::value);
                fill<T>(tensor, group.rank());
                group.broadcast(tensor, root, Purpose::parameters).synchronize();
                expect_elements<T>(tensor, "broadcast", [&](std::int64_t i) { return value_of<T>(root, i); });
            }
        }
    });
}

void expect_all_to_alls(Communicator& group, MemoryPool& pool) {
    for_dtypes([&]<typename T>() {
        for (const std::int64_t count : kSizes) {
            const Tensor input = make(pool, count * group.size(), core::DTypeOf<T>::value);
            fill<T>(input, group.rank());
            const Tensor output = make(pool, count * group.size(), core::DTypeOf<T>::value);
            group.all_to_all(input, output, Purpose::activations).synchronize();
            expect_elements<T>(output, "all_to_all", [&](std::int64_t i) {
                return value_of<T>(static_cast<int>(i / count), group.rank() * count + i % count);
            });
        }
    });
}

void expect_exchanges(Communicator& group, MemoryPool& pool) {
    const int n = group.size();
    const int next = (group.rank() + 1) % n;
    const int previous = (group.rank() + n - 1) % n;
    if (n == 1) {
        group.exchange({}, {}, Purpose::activations).synchronize();
        return;
    }
    // Large both ways at once: neither may wait for the other to receive first.
    constexpr std::int64_t kLarge = std::int64_t{1} << 20;
    const Tensor out = make(pool, kLarge, core::DType::f32);
    const Tensor in = make(pool, kLarge, core::DType::f32);
    const Tensor back = make(pool, kLarge, core::DType::f32);
    fill<float>(out, group.rank());
    const std::vector<Message> sends = {{.tensor = out, .peer = next, .tag = 1},
                                        {.tensor = out, .peer = previous, .tag = 2}};
    const std::vector<Message> receives = {{.tensor = in, .peer = previous, .tag = 1},
                                           {.tensor = back, .peer = next, .tag = 2}};
    group.exchange(sends, receives, Purpose::activations).synchronize();
    expect_elements<float>(in, "exchange", [&](std::int64_t i) { return value_of<float>(previous, i); });
    expect_elements<float>(back, "exchange back", [&](std::int64_t i) { return value_of<float>(next, i); });
    // One tag keeps the order of sending, whatever the sizes; another tag is another queue.
    const std::vector<std::int64_t> counts = {100000, 3, 50000, 1};
    std::vector<Tensor> received;
    std::vector<Work> works;
    for (std::size_t k = 0; k < counts.size(); ++k) {
        const Tensor tensor = make(pool, counts[k], core::DType::f32);
        fill<float>(tensor, group.rank(), static_cast<std::int64_t>(k));
        const std::vector<Message> send = {{.tensor = tensor, .peer = next, .tag = 5}};
        works.push_back(group.exchange(send, {}, Purpose::activations));
    }
    for (const std::int64_t count : counts) {
        received.push_back(make(pool, count, core::DType::f32));
        const std::vector<Message> receive = {{.tensor = received.back(), .peer = previous, .tag = 5}};
        works.push_back(group.exchange({}, receive, Purpose::activations));
    }
    for (const Work& work : works) work.synchronize();
    for (std::size_t k = 0; k < counts.size(); ++k) {
        expect_elements<float>(received[k], "exchange in order", [&](std::int64_t i) {
            return value_of<float>(previous, static_cast<std::int64_t>(k) + i);
        });
    }
    group.barrier();
}

void expect_any_order_of_waiting(Communicator& group, MemoryPool& pool) {
    constexpr std::size_t kFlights = 24;
    for (int round = 0; round < 20; ++round) {
        std::vector<Tensor> tensors;
        std::vector<Work> works;
        for (std::size_t k = 0; k < kFlights; ++k) {
            tensors.push_back(make(pool, static_cast<std::int64_t>(1 + k * 997 % 5000), core::DType::f32));
            fill<float>(tensors.back(), group.rank(), static_cast<std::int64_t>(k));
            if (k % 3 == 2) {
                works.push_back(
                        group.broadcast(tensors.back(), static_cast<int>(k) % group.size(), Purpose::parameters));
            } else {
                works.push_back(group.all_reduce(tensors.back(), ReduceOp::sum, Purpose::gradients));
            }
        }
        for (std::size_t k = 0; k < kFlights; ++k) {
            // 7 is prime to 24: a permutation, shifted by the rank.
            works[(k * 7 + static_cast<std::size_t>(5 * group.rank() + round)) % kFlights].synchronize();
        }
        for (std::size_t k = 0; k < kFlights; ++k) {
            EXPECT_TRUE(works[k].query());
            const auto first = static_cast<std::int64_t>(k);
            expect_elements<float>(tensors[k], "in flight", [&](std::int64_t i) {
                return k % 3 == 2 ? value_of<float>(static_cast<int>(k) % group.size(), first + i)
                                  : expected<float>(group.size(), first + i, ReduceOp::sum);
            });
        }
    }
}

void expect_traffic(Communicator& group, MemoryPool& pool) {
    const std::int64_t n = group.size();
    const std::int64_t others = n - 1;
    constexpr std::int64_t kCount = 840;  // divides by every group size up to 8
    const Tensor small = make(pool, kCount, core::DType::bf16);
    const Tensor large = make(pool, kCount * n, core::DType::bf16);
    const Tensor other = make(pool, kCount * n, core::DType::bf16);
    group.reset_traffic();
    group.all_reduce(small, ReduceOp::sum, Purpose::gradients).synchronize();
    EXPECT_EQ(group.traffic(Purpose::gradients), (Traffic{1, kCount, 2 * others * kCount / n}));
    group.reduce_scatter(large, small, ReduceOp::sum, Purpose::activation_gradients).synchronize();
    EXPECT_EQ(group.traffic(Purpose::activation_gradients), (Traffic{1, kCount * n, others * kCount}));
    group.all_gather(small, large, Purpose::activations).synchronize();
    EXPECT_EQ(group.traffic(Purpose::activations), (Traffic{1, kCount * n, others * kCount}));
    group.broadcast(small, 0, Purpose::parameters).synchronize();
    EXPECT_EQ(group.traffic(Purpose::parameters), (Traffic{1, kCount, group.rank() == 0 ? 0 : kCount}));
    group.all_to_all(large, other, Purpose::loss).synchronize();
    EXPECT_EQ(group.traffic(Purpose::loss), (Traffic{1, kCount * n, others * kCount}));
    group.barrier();
    EXPECT_EQ(group.traffic(Purpose::control), (Traffic{1, 0, 0}));
    EXPECT_EQ(group.traffic(Purpose::norm), Traffic{});
    group.reset_traffic();
    EXPECT_EQ(group.traffic(Purpose::gradients), Traffic{});
    // 5 elements over the ranks: the own chunk from the others, the others' chunks from them.
    const Tensor five = make(pool, 5, core::DType::f32);
    group.all_reduce(five, ReduceOp::sum, Purpose::gradients).synchronize();
    const std::int64_t own = chunk_of(5, group.size(), group.rank()).count();
    EXPECT_EQ(group.traffic(Purpose::gradients), (Traffic{1, 5, others * own + 5 - own}));
}

void expect_refusals(Communicator& group, MemoryPool& pool) {
    const Tensor ids = make(pool, 4, core::DType::u16);
    const Tensor one = make(pool, 1, core::DType::f32);
    const Tensor wrong = make(pool, group.size() + 1, core::DType::f32);
    const Tensor narrow = make(pool, group.size(), core::DType::bf16);
    EXPECT_THROW(group.all_reduce(ids, ReduceOp::sum, Purpose::gradients), core::ShapeError);
    EXPECT_THROW(group.reduce_scatter(wrong, one, ReduceOp::sum, Purpose::gradients), core::ShapeError);
    EXPECT_THROW(group.reduce_scatter(narrow, one, ReduceOp::sum, Purpose::gradients), core::ShapeError);
    EXPECT_THROW(group.all_gather(one, wrong, Purpose::parameters), core::ShapeError);
    EXPECT_THROW(group.broadcast(one, group.size(), Purpose::parameters), core::ShapeError);
    EXPECT_THROW(group.broadcast(one, -1, Purpose::parameters), core::ShapeError);
    EXPECT_THROW(group.all_to_all(narrow, narrow, Purpose::activations), core::ShapeError);
    const std::vector<Message> to_itself = {{.tensor = one, .peer = group.rank(), .tag = 0}};
    const std::vector<Message> to_nobody = {{.tensor = one, .peer = group.size(), .tag = 0}};
    EXPECT_THROW(group.exchange(to_itself, {}, Purpose::activations), core::ShapeError);
    EXPECT_THROW(group.exchange({}, to_nobody, Purpose::activations), core::ShapeError);
    group.barrier();
}

}  // namespace tessera::parallel::test
