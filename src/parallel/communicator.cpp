#include "parallel/communicator.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tessera::parallel {

using core::raise;
using core::ShapeError;
using core::Tensor;

std::string_view name_of(Axis axis) {
    constexpr std::array<std::string_view, kAxes> names = {"tensor", "context",   "data", "pipeline",
                                                           "model",  "embedding", "world"};
    return names[static_cast<std::size_t>(axis)];
}

std::string_view name_of(Purpose purpose) {
    constexpr std::array<std::string_view, kPurposes> names = {
            "parameters", "gradients", "activations", "activation gradients", "loss", "norm", "control"};
    return names[static_cast<std::size_t>(purpose)];
}

Range chunk_of(std::int64_t numel, int size, int rank) {
    const std::int64_t each = (numel + size - 1) / size;
    return {.begin = std::min(numel, each * rank), .end = std::min(numel, each * (rank + 1))};
}

Communicator::Communicator(Axis axis, std::vector<int> ranks, int rank)
    : axis_(axis), ranks_(std::move(ranks)), rank_(rank) {
    TESSERA_INVARIANT(rank_ >= 0 && rank_ < size());
}

namespace {

void check_reducible(const Tensor& tensor, std::string_view operation) {
    if (tensor.dtype() == core::DType::u16) {
        raise<ShapeError>("{}: cannot reduce tensors of {}; f32, bf16, f16, i32 and i64 can be", operation,
                          core::name_of(tensor.dtype()));
    }
}

/// `large` must be `size` times `small`, of one dtype.
void check_multiple(const Tensor& small, const Tensor& large, int size, std::string_view operation) {
    if (small.dtype() != large.dtype()) {
        raise<ShapeError>("{}: input and output differ in dtype ({}, {})", operation, core::name_of(small.dtype()),
                          core::name_of(large.dtype()));
    }
    if (large.numel() != small.numel() * size) {
        raise<ShapeError>("{}: {} elements on one side and {} on the other; {} ranks need exactly {} times as many",
                          operation, small.numel(), large.numel(), size, size);
    }
}

}  // namespace

void Communicator::count(Purpose purpose, std::int64_t payload, std::int64_t wire) {
    Traffic& traffic = traffic_[static_cast<std::size_t>(purpose)];
    ++traffic.calls;
    traffic.payload_elements += payload;
    traffic.wire_elements += wire;
}

Work Communicator::all_reduce(const Tensor& tensor, ReduceOp op, Purpose purpose) {
    check_reducible(tensor, "all_reduce");
    const std::int64_t own = chunk_of(tensor.numel(), size(), rank_).count();
    count(purpose, tensor.numel(), (size() - 1) * own + tensor.numel() - own);
    return start_all_reduce(tensor, op, purpose);
}

Work Communicator::reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op, Purpose purpose) {
    check_reducible(input, "reduce_scatter");
    check_multiple(output, input, size(), "reduce_scatter");
    count(purpose, input.numel(), (size() - 1) * output.numel());
    return start_reduce_scatter(input, output, op, purpose);
}

Work Communicator::all_gather(const Tensor& input, const Tensor& output, Purpose purpose) {
    check_multiple(input, output, size(), "all_gather");
    count(purpose, output.numel(), (size() - 1) * input.numel());
    return start_all_gather(input, output, purpose);
}

Work Communicator::broadcast(const Tensor& tensor, int root, Purpose purpose) {
    if (root < 0 || root >= size()) {
        raise<ShapeError>("broadcast: root {} is not in the {} group of {} ranks", root, name_of(axis_), size());
    }
    count(purpose, tensor.numel(), rank_ == root ? 0 : tensor.numel());
    return start_broadcast(tensor, root, purpose);
}

Work Communicator::all_to_all(const Tensor& input, const Tensor& output, Purpose purpose) {
    check_multiple(input, output, 1, "all_to_all");
    if (input.numel() % size() != 0) {
        raise<ShapeError>("all_to_all: {} elements cannot be dealt to {} ranks", input.numel(), size());
    }
    if (input.overlaps(output)) raise<ShapeError>("all_to_all: input and output overlap");
    count(purpose, input.numel(), input.numel() / size() * (size() - 1));
    return start_all_to_all(input, output, purpose);
}

void Communicator::check_peers(std::span<const Message> messages, std::string_view direction) const {
    for (const Message& message : messages) {
        if (message.peer < 0 || message.peer >= size() || message.peer == rank_ || message.tag < 0) {
            raise<ShapeError>(
                    "exchange: a message {} rank {} with tag {} in the {} group, of which this is rank {} of {}",
                    direction, message.peer, message.tag, name_of(axis_), rank_, size());
        }
    }
}

Work Communicator::exchange(std::span<const Message> sends, std::span<const Message> receives, Purpose purpose) {
    check_peers(sends, "to");
    check_peers(receives, "from");
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (const Message& message : sends) sent += message.tensor.numel();
    for (const Message& message : receives) received += message.tensor.numel();
    count(purpose, sent, received);
    return start_exchange(sends, receives, purpose);
}

void Communicator::barrier(Purpose purpose) {
    count(purpose, 0, 0);
    start_barrier(purpose);
}

}  // namespace tessera::parallel
