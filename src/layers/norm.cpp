#include "layers/norm.h"

#include <optional>

namespace tessera::layers {
namespace {

using core::DType;
using core::Tensor;

const Tensor* address_or_null(const Tensor& tensor) {
    return tensor.defined() ? &tensor : nullptr;
}
Tensor* gradient_of(Parameter* parameter) {
    return parameter ? &parameter->main_grad() : nullptr;
}
const Tensor* value_of(const Parameter* parameter) {
    return parameter ? &parameter->value() : nullptr;
}

/// Saves x and the row statistics.
class NormNode : public Node {
public:
    NormNode(const NormParameters& p, Var x, Tensor mean, Tensor rstd, std::int64_t y)
        : p_(p), x_(std::move(x)), mean_(std::move(mean)), rstd_(std::move(rstd)), y_(y) {}
    std::string_view name() const override { return "norm"; }
    void saved(std::vector<Tensor>& out) const override {
        out.push_back(x_.value);
        if (mean_.defined()) out.push_back(mean_);
        out.push_back(rstd_);
    }
    void backward(Tape& tape) override {
        const ParameterLease lease(*p_.unit, tape.stream());
        Tensor dy = tape.take_gradient(y_);
        TESSERA_INVARIANT(dy.defined());
        const Tensor dresidual = tape.take_gradient(x_.id);
        Tensor dx = tape.writable(dy);
        kernels::norm_backward(tape.backend(), tape.stream(),
                               {.kind = p_.kind,
                                .x = x_.value,
                                .dy = dy,
                                .gamma = p_.gamma->value(),
                                .mean = address_or_null(mean_),
                                .rstd = rstd_,
                                .dresidual = address_or_null(dresidual),
                                .dx = dx,
                                .dgamma = p_.gamma->main_grad(),
                                .dbeta = gradient_of(p_.beta)});
        dy = {};
        tape.add_gradient(x_.id, std::move(dx));
    }

private:
    NormParameters p_;
    Var x_;
    Tensor mean_;
    Tensor rstd_;
    std::int64_t y_;
};

/// With a norm it saves the new residual and the row statistics; without one, nothing: the mask is drawn again.
class ResidualNode : public Node {
public:
    ResidualNode(const ResidualArgs& args, std::optional<NormParameters> p, kernels::Dropout dropout,
                 kernels::TokenMap tokens, Tensor residual_out, Tensor mean, Tensor rstd, const ResidualOutput& out)
        : unit_(args.unit),
          bias_(args.bias),
          x_(args.x.id),
          residual_(args.residual.id),
          p_(p),
          dropout_(dropout),
          tokens_(std::move(tokens)),
          residual_out_(std::move(residual_out)),
          mean_(std::move(mean)),
          rstd_(std::move(rstd)),
          y_(out.y.id),
          new_residual_(out.residual.id) {}
    std::string_view name() const override { return "bias_dropout_residual_norm"; }
    void saved(std::vector<Tensor>& out) const override {
        for (const Tensor* tensor : {&residual_out_, &mean_, &rstd_}) {
            if (tensor->defined()) out.push_back(*tensor);
        }
    }
    void backward(Tape& tape) override {
        std::optional<ParameterLease> lease;
        if (p_ || bias_) lease.emplace(p_ ? *p_->unit : *unit_, tape.stream());
        Tensor dy = tape.take_gradient(y_);
        Tensor dresidual_out = tape.take_gradient(new_residual_);
        TESSERA_INVARIANT(dy.defined() || dresidual_out.defined());
        const bool drops = dropout_.probability > 0;
        Tensor dresidual = tape.writable(dresidual_out.defined() ? dresidual_out : dy);
        Tensor dx;
        if (!drops) {
            dx = dresidual;
        } else if (dy.defined() && dresidual_out.defined()) {
            dx = tape.writable(dy);
        } else {
            dx = tape.empty_like(dresidual);
        }
        kernels::bias_dropout_residual_norm_backward(tape.backend(), tape.stream(),
                                                     {.dy = address_or_null(dy),
                                                      .dresidual_out = address_or_null(dresidual_out),
                                                      .dropout = dropout_,
                                                      .tokens = tokens_,
                                                      .kind = p_ ? p_->kind : kernels::NormKind::layer,
                                                      .residual_out = p_ ? &residual_out_ : nullptr,
                                                      .gamma = p_ ? value_of(p_->gamma) : nullptr,
                                                      .mean = address_or_null(mean_),
                                                      .rstd = address_or_null(rstd_),
                                                      .dresidual = dresidual,
                                                      .dx = dx,
                                                      .dbias = gradient_of(bias_),
                                                      .dgamma = p_ ? gradient_of(p_->gamma) : nullptr,
                                                      .dbeta = p_ ? gradient_of(p_->beta) : nullptr});
        dy = {};
        dresidual_out = {};
        tape.add_gradient(x_, std::move(dx));
        tape.add_gradient(residual_, std::move(dresidual));
    }

private:
    ParameterUnit* unit_;
    Parameter* bias_;
    std::int64_t x_;
    std::int64_t residual_;
    std::optional<NormParameters> p_;
    kernels::Dropout dropout_;
    kernels::TokenMap tokens_;
    Tensor residual_out_;
    Tensor mean_;
    Tensor rstd_;
    std::int64_t y_;
    std::int64_t new_residual_;
};

}  // namespace

Var norm(const ForwardContext& ctx, const NormParameters& p, const Var& x) {
    const ParameterLease lease(*p.unit, ctx.stream);
    const std::int64_t tokens = x.value.size(0);
    Var y = ctx.output(ctx.empty(x.value.shape(), x.value.dtype()));
    Tensor mean;
    Tensor rstd;
    if (ctx.tape) {
        if (p.kind == kernels::NormKind::layer) mean = ctx.empty({tokens}, DType::f32);
        rstd = ctx.empty({tokens}, DType::f32);
    }
    kernels::norm_forward(ctx.backend, ctx.stream,
                          {.kind = p.kind,
                           .eps = p.eps,
                           .x = x.value,
                           .gamma = p.gamma->value(),
                           .beta = value_of(p.beta),
                           .y = y.value,
                           .mean = mean.defined() ? &mean : nullptr,
                           .rstd = rstd.defined() ? &rstd : nullptr});
    if (ctx.tape) ctx.tape->record(std::make_unique<NormNode>(p, x, mean, rstd, y.id));
    return y;
}

ResidualOutput bias_dropout_residual_norm(const ForwardContext& ctx, const ResidualArgs& args,
                                          const NormParameters* p) {
    std::optional<ParameterLease> lease;
    if (p || args.bias) lease.emplace(p ? *p->unit : *args.unit, ctx.stream);
    const core::Shape shape = args.x.value.shape();
    const DType dtype = args.x.value.dtype();
    ResidualOutput out;
    // Without a tape nobody needs the old residual again.
    out.residual = ctx.output(ctx.tape ? ctx.empty(shape, dtype) : args.residual.value);
    if (p) out.y = ctx.output(ctx.tape ? ctx.empty(shape, dtype) : args.x.value);
    Tensor mean;
    Tensor rstd;
    if (p && ctx.tape) {
        if (p->kind == kernels::NormKind::layer) mean = ctx.empty({shape[0]}, DType::f32);
        rstd = ctx.empty({shape[0]}, DType::f32);
    }
    const kernels::Dropout dropout{.probability = ctx.mode == Mode::train ? static_cast<float>(args.dropout) : 0.0F,
                                   .seed = ctx.seed,
                                   .site = args.site};
    kernels::bias_dropout_residual_norm_forward(ctx.backend, ctx.stream,
                                                {.x = args.x.value,
                                                 .bias = value_of(args.bias),
                                                 .residual = args.residual.value,
                                                 .dropout = dropout,
                                                 .tokens = ctx.tokens,
                                                 .residual_out = out.residual.value,
                                                 .kind = p ? p->kind : kernels::NormKind::layer,
                                                 .eps = p ? p->eps : 0.0F,
                                                 .gamma = p ? value_of(p->gamma) : nullptr,
                                                 .beta = p ? value_of(p->beta) : nullptr,
                                                 .y = p ? &out.y.value : nullptr,
                                                 .mean = mean.defined() ? &mean : nullptr,
                                                 .rstd = rstd.defined() ? &rstd : nullptr});
    if (ctx.tape) {
        ctx.tape->record(std::make_unique<ResidualNode>(args, p ? std::optional(*p) : std::nullopt, dropout, ctx.tokens,
                                                        p ? out.residual.value : Tensor{}, mean, rstd, out));
    }
    return out;
}

}  // namespace tessera::layers
