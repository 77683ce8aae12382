#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace tessera::parallel {

enum class ReduceOp : std::uint8_t { sum, max };

/// What a group of ranks has in common: its members differ in this coordinate only. `model` is tensor × context ×
/// pipeline at one data index, `embedding` the first and the last pipeline stage.
enum class Axis : std::uint8_t { tensor, context, data, pipeline, model, embedding, world };
inline constexpr std::size_t kAxes = 7;
std::string_view name_of(Axis axis);

/// What the bytes are; traffic is counted by it.
enum class Purpose : std::uint8_t { parameters, gradients, activations, activation_gradients, loss, norm, control };
inline constexpr std::size_t kPurposes = 7;
std::string_view name_of(Purpose purpose);

struct Traffic {
    std::int64_t calls = 0;
    std::int64_t payload_elements = 0;  ///< of the tensors handed in, as the caller sees them
    std::int64_t wire_elements = 0;     ///< that this rank received from others
    bool operator==(const Traffic&) const = default;
};

/// A started operation. Its tensors must stay untouched until it has been waited for. Copyable; a default-constructed
/// one has completed.
class Work {
public:
    class Pending {
    public:
        virtual ~Pending() = default;
        /// Moves on without blocking; true once completed.
        virtual bool advance() = 0;
        /// Blocks the host until completed. @throws RunError when a peer does not come within the limit.
        virtual void synchronize() = 0;
    };

    Work() = default;
    explicit Work(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}
    /// True once completed. Never blocks; lets the transport move.
    bool query() const { return pending_ == nullptr || pending_->advance(); }
    void synchronize() const {
        if (pending_ != nullptr) pending_->synchronize();
    }
    /// Later work of the stream starts after this one. On the CPU, whose streams are immediate, the host waits.
    void wait(core::Stream&) const { synchronize(); }

private:
    std::shared_ptr<Pending> pending_;
};

/// One message of a grouped exchange. Messages between two ranks with one tag arrive in the order in which they were
/// sent.
struct Message {
    core::Tensor tensor;
    int peer = 0;
    int tag = 0;
};

/// A group of ranks that exchange tensors. Every member calls the same operations in the same order, with tensors of
/// the same dtype and sizes.
///
/// Reductions are deterministic: the contributions of ranks [0, N) are widened to f32, summed in the order of a binary
/// tree over ranks (tree_split in reduction_tree.h) and rounded once. The result therefore depends neither on timing
/// nor on how the tensor was cut into pieces, and is the same on every rank.
///
/// @throws ShapeError for sizes or dtypes that do not fit, before anything is sent.
class Communicator {
public:
    Communicator(Axis axis, std::vector<int> ranks, int rank);
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    Axis axis() const { return axis_; }
    /// This process's place in the group, and the group's size.
    int rank() const { return rank_; }
    int size() const { return static_cast<int>(ranks_.size()); }
    /// The members' ranks in the world, by place.
    const std::vector<int>& ranks() const { return ranks_; }

    /// tensor = reduction over ranks of tensor, in place. f32, bf16, f16, i32 or i64.
    Work all_reduce(const core::Tensor& tensor, ReduceOp op, Purpose purpose);
    /// output[n] = reduction over ranks of input[rank·n : (rank+1)·n]; input has N·n elements.
    Work reduce_scatter(const core::Tensor& input, const core::Tensor& output, ReduceOp op, Purpose purpose);
    /// output[r·n : (r+1)·n] = input[n] of rank r. The input may be this rank's own part of the output.
    Work all_gather(const core::Tensor& input, const core::Tensor& output, Purpose purpose);
    /// tensor = the root's tensor.
    Work broadcast(const core::Tensor& tensor, int root, Purpose purpose);
    /// output[r·n : (r+1)·n] = input[rank·n : (rank+1)·n] of rank r. No overlap of input and output.
    Work all_to_all(const core::Tensor& input, const core::Tensor& output, Purpose purpose);
    /// All sends and receives at once, in no order: two ranks that send to one another do not block one another.
    Work exchange(std::span<const Message> sends, std::span<const Message> receives, Purpose purpose);
    /// Returns when every member has called it.
    void barrier(Purpose purpose = Purpose::control);

    const Traffic& traffic(Purpose purpose) const { return traffic_[static_cast<std::size_t>(purpose)]; }
    void reset_traffic() { traffic_ = {}; }

protected:
    virtual Work start_all_reduce(const core::Tensor& tensor, ReduceOp op, Purpose purpose) = 0;
    virtual Work start_reduce_scatter(const core::Tensor& input, const core::Tensor& output, ReduceOp op,
                                      Purpose purpose) = 0;
    virtual Work start_all_gather(const core::Tensor& input, const core::Tensor& output, Purpose purpose) = 0;
    virtual Work start_broadcast(const core::Tensor& tensor, int root, Purpose purpose) = 0;
    virtual Work start_all_to_all(const core::Tensor& input, const core::Tensor& output, Purpose purpose) = 0;
    virtual Work start_exchange(std::span<const Message> sends, std::span<const Message> receives, Purpose purpose) = 0;
    virtual void start_barrier(Purpose purpose) = 0;

private:
    void count(Purpose purpose, std::int64_t payload, std::int64_t wire);
    void check_peers(std::span<const Message> messages, std::string_view direction) const;

    Axis axis_;
    std::vector<int> ranks_;
    int rank_;
    std::array<Traffic, kPurposes> traffic_{};
};

/// Elements [begin, end) of `numel` that belong to `rank` of `size`: round_up(numel / size) each, the last ones fewer.
struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t count() const { return end - begin; }
};
Range chunk_of(std::int64_t numel, int size, int rank);

/// A group of one: every operation is the identity or a copy.
std::unique_ptr<Communicator> make_self_communicator(Axis axis, int world_rank = 0);

}  // namespace tessera::parallel
