#pragma once
#include <string_view>

#include "train/config_field.h"

// Part of the list of config keys (config_fields.h): numbers and layout.

namespace tessera::train {

inline bool has_f16(const Config& config) {
    return config.precision.dtype == core::DType::f16;
}
inline bool has_dynamic_loss_scale(const Config& config) {
    return has_f16(config) && config.precision.loss_scale.dynamic;
}

template <typename P, typename V>
void visit_precision(P& precision, V& visit) {
    constexpr std::string_view kDynamic = "with precision.dtype = \"f16\" and precision.loss_scale = \"dynamic\"";
    visit(Field{.section = "precision",
                .key = "dtype",
                .doc = "of parameters and activations; main parameters, moments, softmax, norms and loss are f32"},
          precision.dtype);
    visit(Field{.section = "precision",
                .key = "grad_dtype",
                .doc = "of accumulated and reduced gradients",
                .availability = Availability::default_only,
                .planned = "model"},
          precision.grad_dtype);
    visit(Field{.section = "precision",
                .key = "loss_scale",
                .doc = "\"dynamic\" or a number",
                .min = 1,
                .applies = has_f16,
                .applies_when = "with precision.dtype = \"f16\""},
          precision.loss_scale);
    visit(Field{.section = "precision",
                .key = "initial_loss_scale",
                .doc = "where the dynamic scale starts",
                .min = 1,
                .applies = has_dynamic_loss_scale,
                .applies_when = kDynamic},
          precision.initial_loss_scale);
    visit(Field{.section = "precision",
                .key = "loss_scale_window",
                .doc = "clean steps before the scale doubles",
                .min = 1,
                .applies = has_dynamic_loss_scale,
                .applies_when = kDynamic},
          precision.loss_scale_window);
    visit(Field{.section = "precision",
                .key = "hysteresis",
                .doc = "overflows before the scale halves",
                .min = 1,
                .applies = has_dynamic_loss_scale,
                .applies_when = kDynamic},
          precision.hysteresis);
}

template <typename P, typename V>
void visit_parallel(P& parallel, V& visit) {
    constexpr auto kOnly = Availability::default_only;
    visit(Field{.section = "parallel",
                .key = "tensor",
                .doc = "tensor-parallel ranks",
                .min = 1,
                .availability = kOnly},
          parallel.tensor);
    visit(Field{.section = "parallel", .key = "pipeline", .doc = "pipeline stages", .min = 1, .availability = kOnly},
          parallel.pipeline);
    visit(Field{.section = "parallel",
                .key = "virtual_stages",
                .doc = "model chunks per pipeline stage",
                .min = 1,
                .availability = kOnly},
          parallel.virtual_stages);
    visit(Field{.section = "parallel",
                .key = "context",
                .doc = "context-parallel ranks",
                .min = 1,
                .availability = kOnly},
          parallel.context);
    visit(Field{.section = "parallel",
                .key = "sequence_parallel",
                .doc = "split norms and dropout by tokens",
                .availability = kOnly},
          parallel.sequence_parallel);
    visit(Field{.section = "parallel",
                .key = "schedule",
                .doc = "order of forwards and backwards over the stages",
                .planned = "gpipe,interleaved,zero_bubble"},
          parallel.schedule);
}

template <typename Z, typename R, typename V>
void visit_zero(Z& zero, R& recompute, V& visit) {
    visit(Field{.section = "zero",
                .key = "stage",
                .doc = "what data-parallel ranks share out: 0 nothing, 1 optimizer, 2 + gradients, 3 + parameters",
                .min = 0,
                .max = 3,
                .availability = Availability::default_only},
          zero.stage);
    visit(Field{.section = "zero",
                .key = "offload_optimizer",
                .doc = "where optimizer state lives",
                .planned = "cpu,nvme"},
          zero.offload_optimizer);
    visit(Field{.section = "zero",
                .key = "offload_parameters",
                .doc = "where idle parameters live",
                .planned = "cpu,nvme"},
          zero.offload_parameters);
    visit(Field{.section = "recompute",
                .key = "granularity",
                .doc = "activations computed again in backward instead of kept",
                .planned = "selective,full,budget"},
          recompute.granularity);
}

}  // namespace tessera::train
