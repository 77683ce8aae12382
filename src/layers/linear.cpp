#include "layers/linear.h"

namespace tessera::layers {
namespace {

using core::Tensor;
using kernels::Epilogue;

/// Saves x (and the pre-activation of the layer below, if x carries one).
class LinearNode : public Node {
public:
    LinearNode(ParameterUnit& unit, Parameter& weight, Parameter* bias, std::int64_t counted, Var x, std::int64_t y)
        : unit_(unit), weight_(weight), bias_(bias), counted_(counted), x_(std::move(x)), y_(y) {}

    std::string_view name() const override { return "linear"; }

    void saved(std::vector<Tensor>& out) const override {
        out.push_back(x_.value);
        if (x_.pre_activation.defined()) out.push_back(x_.pre_activation);
    }

    void backward(Tape& tape) override {
        const ParameterLease lease(unit_, tape.stream());
        const Tensor dy = tape.take_gradient(y_);
        TESSERA_INVARIANT(dy.defined());
        const Tensor x = std::move(x_.value);
        if (x_.id >= 0) {
            const Tensor pre = std::move(x_.pre_activation);
            Tensor dx;
            if (x_.activation == Epilogue::none) {
                dx = tape.empty_like(x);
            } else {
                // Each element of pre is read before it is written; the gradient may take its place.
                dx = tape.writable(pre);
            }
            kernels::linear_dgrad(tape.backend(), tape.stream(),
                                  {.dy = dy,
                                   .weight = weight_.value(),
                                   .epilogue = x_.activation,
                                   .pre_activation = x_.activation == Epilogue::none ? nullptr : &pre,
                                   .dx = dx,
                                   .counted_outputs = counted_});
            tape.add_gradient(x_.id, std::move(dx));
        }
        tape.weight_gradient({x, dy}, [&weight = weight_, bias = bias_, counted = counted_, &backend = tape.backend(),
                                       &stream = tape.stream()](const std::vector<Tensor>& inputs) {
            kernels::linear_wgrad(backend, stream,
                                  {.x = inputs[0],
                                   .dy = inputs[1],
                                   .dweight = weight.main_grad(),
                                   .dbias = bias ? &bias->main_grad() : nullptr,
                                   .counted_outputs = counted});
        });
    }

private:
    ParameterUnit& unit_;
    Parameter& weight_;
    Parameter* bias_;
    std::int64_t counted_;
    Var x_;
    std::int64_t y_;
};

}  // namespace

Var ColumnParallelLinear::forward(const ForwardContext& ctx, const Var& x, Epilogue epilogue,
                                  core::MemoryCategory category) const {
    const ParameterLease lease(*unit_, ctx.stream);
    const std::int64_t tokens = x.value.size(0);
    const std::int64_t outputs = weight_->shape()[0];
    const core::DType dtype = x.value.dtype();
    const bool activates = epilogue == Epilogue::bias_gelu || epilogue == Epilogue::swiglu;
    Var y = ctx.output(ctx.empty({tokens, epilogue == Epilogue::swiglu ? outputs / 2 : outputs}, dtype, category));
    if (activates && ctx.tape) {
        y.pre_activation = ctx.empty({tokens, outputs}, dtype);
        y.activation = epilogue;
    }
    kernels::linear_forward(ctx.backend, ctx.stream,
                            {.x = x.value,
                             .weight = weight_->value(),
                             .bias = bias_ ? &bias_->value() : nullptr,
                             .epilogue = epilogue,
                             .y = y.value,
                             .pre_activation = y.pre_activation.defined() ? &y.pre_activation : nullptr,
                             .counted_outputs = counted_outputs_});
    if (ctx.tape) ctx.tape->record(std::make_unique<LinearNode>(*unit_, *weight_, bias_, counted_outputs_, x, y.id));
    return y;
}

Var RowParallelLinear::forward(const ForwardContext& ctx, const Var& x) const {
    const ParameterLease lease(*unit_, ctx.stream);
    Var y = ctx.output(ctx.empty({x.value.size(0), weight_->shape()[0]}, x.value.dtype()));
    kernels::linear_forward(ctx.backend, ctx.stream, {.x = x.value, .weight = weight_->value(), .y = y.value});
    if (ctx.tape) ctx.tape->record(std::make_unique<LinearNode>(*unit_, *weight_, nullptr, 0, x, y.id));
    return y;
}

}  // namespace tessera::layers
