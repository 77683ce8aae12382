#pragma once
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace tessera::layers {

/// A value on (or off) the tape. The gradient's slot is named by `id`; -1 = no gradient is wanted.
/// A value that left a linear layer through an activation carries the pre-activation: the gradient in its slot is then
/// the pre-activation's, and only a linear layer may consume it (its dgrad has the matching epilogue).
struct Var {
    core::Tensor value;
    std::int64_t id = -1;
    kernels::Epilogue activation = kernels::Epilogue::none;
    core::Tensor pre_activation{};
};

class Tape;

/// One fused operation of the forward, with what it saved and its hand-written backward.
class Node {
public:
    virtual ~Node() = default;
    virtual std::string_view name() const = 0;
    /// First half: consumes the gradients of its outputs, gives those of its inputs, and hands a second half that only
    /// weights need to Tape::weight_gradient.
    virtual void backward(Tape& tape) = 0;
    /// Tensors kept for backward (parameters apart).
    virtual void saved(std::vector<core::Tensor>& out) const = 0;
};

/// What happens to second halves: at once, or kept until run_weight_gradients (a zero-bubble schedule).
enum class WeightGradients : std::uint8_t { immediate, deferred };

/// "Autograd-lite" for one micro-batch and model chunk: a list of coarse nodes. It owns what the nodes saved and says
/// how many bytes that is. Backward releases each node as soon as it has run.
class Tape {
public:
    Tape(kernels::Backend& backend, core::Stream& stream) : backend_(backend), stream_(stream) {}
    Tape(const Tape&) = delete;
    Tape& operator=(const Tape&) = delete;

    kernels::Backend& backend() const { return backend_; }
    core::Stream& stream() const { return stream_; }

    /// A new gradient slot.
    std::int64_t new_id();
    void record(std::unique_ptr<Node> node) { nodes_.push_back(std::move(node)); }

    /// Runs the nodes backwards. Gradients of the outputs were given by add_gradient or by a loss node.
    void backward(WeightGradients mode);
    /// Runs and releases the pending second halves, oldest first.
    void run_weight_gradients();

    /// The first writer's tensor becomes the gradient; later ones are added where paths join. id -1 is ignored.
    void add_gradient(std::int64_t id, core::Tensor gradient);
    /// Takes the gradient out of its slot; undefined if nothing reached it.
    core::Tensor take_gradient(std::int64_t id);
    /// `gradient` itself if nobody else holds its memory, else a new tensor of its shape to write to.
    core::Tensor writable(const core::Tensor& gradient);
    core::Tensor empty_like(const core::Tensor& tensor);

    /// Called by nodes: a second half that reads `inputs` (the (x, dy) of a linear layer).
    void weight_gradient(std::vector<core::Tensor> inputs, std::function<void(const std::vector<core::Tensor>&)> run);

    /// Bytes of distinct memory that nodes and pending second halves keep.
    std::int64_t saved_bytes() const;
    std::int64_t pending_bytes() const;
    std::size_t size() const { return nodes_.size(); }
    /// False if a node keeps (part of) this memory: then nobody may overwrite it.
    bool may_overwrite(const core::Tensor& tensor) const;

private:
    struct Pending {
        std::vector<core::Tensor> inputs;
        std::function<void(const std::vector<core::Tensor>&)> run;
    };

    kernels::Backend& backend_;
    core::Stream& stream_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<core::Tensor> gradients_;
    std::vector<Pending> pending_;
    WeightGradients mode_ = WeightGradients::immediate;
};

}  // namespace tessera::layers
