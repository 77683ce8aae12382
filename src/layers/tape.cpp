#include "layers/tape.h"

#include <algorithm>
#include <set>

namespace tessera::layers {
namespace {

std::int64_t distinct_bytes(const std::vector<core::Tensor>& tensors) {
    std::set<const core::Storage*> seen;
    std::int64_t bytes = 0;
    for (const core::Tensor& tensor : tensors) {
        if (tensor.defined() && seen.insert(tensor.storage().get()).second) bytes += tensor.storage()->bytes();
    }
    return bytes;
}

}  // namespace

std::int64_t Tape::new_id() {
    gradients_.emplace_back();
    return static_cast<std::int64_t>(gradients_.size()) - 1;
}

void Tape::backward(WeightGradients mode) {
    mode_ = mode;
    while (!nodes_.empty()) {
        const std::unique_ptr<Node> node = std::move(nodes_.back());
        nodes_.pop_back();
        node->backward(*this);
    }
    gradients_.clear();
}

void Tape::weight_gradient(std::vector<core::Tensor> inputs,
                           std::function<void(const std::vector<core::Tensor>&)> run) {
    if (mode_ == WeightGradients::immediate) {
        run(inputs);
    } else {
        pending_.push_back(Pending{std::move(inputs), std::move(run)});
    }
}

void Tape::run_weight_gradients() {
    for (Pending& pending : pending_) {
        pending.run(pending.inputs);
        pending.inputs.clear();
    }
    pending_.clear();
}

core::Tensor Tape::empty_like(const core::Tensor& tensor) {
    return core::Tensor::empty(backend_.pool(), tensor.shape(), tensor.dtype(), core::MemoryCategory::activations);
}

core::Tensor Tape::writable(const core::Tensor& gradient) {
    // One handle is the caller's own.
    return gradient.storage().use_count() == 1 ? gradient : empty_like(gradient);
}

void Tape::add_gradient(std::int64_t id, core::Tensor gradient) {
    if (id < 0) return;
    core::Tensor& slot = gradients_[static_cast<std::size_t>(id)];
    if (!slot.defined()) {
        slot = std::move(gradient);
        return;
    }
    if (slot.storage().use_count() == 1) {
        kernels::add(backend_, stream_, gradient, slot);
    } else if (gradient.storage().use_count() == 1) {
        kernels::add(backend_, stream_, slot, gradient);
        slot = std::move(gradient);
    } else {
        core::Tensor sum = empty_like(slot);
        kernels::cast(backend_, stream_, slot, sum);
        kernels::add(backend_, stream_, gradient, sum);
        slot = std::move(sum);
    }
}

core::Tensor Tape::take_gradient(std::int64_t id) {
    if (id < 0) return {};
    return std::move(gradients_[static_cast<std::size_t>(id)]);
}

std::int64_t Tape::saved_bytes() const {
    std::vector<core::Tensor> tensors;
    for (const auto& node : nodes_) node->saved(tensors);
    for (const Pending& pending : pending_) tensors.insert(tensors.end(), pending.inputs.begin(), pending.inputs.end());
    return distinct_bytes(tensors);
}

std::int64_t Tape::pending_bytes() const {
    std::vector<core::Tensor> tensors;
    for (const Pending& pending : pending_) tensors.insert(tensors.end(), pending.inputs.begin(), pending.inputs.end());
    return distinct_bytes(tensors);
}

bool Tape::may_overwrite(const core::Tensor& tensor) const {
    std::vector<core::Tensor> tensors;
    for (const auto& node : nodes_) node->saved(tensors);
    for (const Pending& pending : pending_) tensors.insert(tensors.end(), pending.inputs.begin(), pending.inputs.end());
    return std::none_of(tensors.begin(), tensors.end(),
                        [&](const core::Tensor& kept) { return kept.overlaps(tensor); });
}

}  // namespace tessera::layers
