#pragma once
#include <string_view>

#include "train/config_field.h"

// Part of the list of config keys (config_fields.h): optimizer and schedule.

namespace tessera::train {

template <typename O, typename V>
void visit_optimizer(O& optimizer, V& visit) {
    visit(Field{.section = "optimizer",
                .key = "name",
                .doc = "AdamW (Loshchilov, Hutter 2019)",
                .planned = "adam,sgd,lamb,lion,muon"},
          optimizer.name);
    visit(Field{.section = "optimizer",
                .key = "lr",
                .doc = "peak learning rate",
                .min = 0,
                .presence = Presence::required},
          optimizer.lr);
    visit(Field{.section = "optimizer", .key = "min_lr", .doc = "where the schedule ends", .min = 0}, optimizer.min_lr);
    visit(Field{.section = "optimizer",
                .key = "betas",
                .doc = "decay rates of the two moments",
                .min = 0,
                .max = 1,
                .max_excluded = true},
          optimizer.betas);
    visit(Field{.section = "optimizer",
                .key = "eps",
                .doc = "added to the root of the second moment",
                .min = 0,
                .min_excluded = true},
          optimizer.eps);
    visit(Field{.section = "optimizer",
                .key = "weight_decay",
                .doc = "decoupled decay of matrices and embeddings; biases and norm gains have none",
                .min = 0},
          optimizer.weight_decay);
    visit(Field{.section = "optimizer",
                .key = "clip_grad_norm",
                .doc = "gradients are scaled down to this global norm; 0: never",
                .min = 0},
          optimizer.clip_grad_norm);
}

inline bool has_decay(const Config& config) {
    return config.schedule.style != ScheduleStyle::constant && config.schedule.style != ScheduleStyle::inverse_sqrt;
}

template <typename S, typename V>
void visit_schedule(S& schedule, V& visit) {
    visit(Field{.section = "schedule", .key = "style", .doc = "shape of the learning rate after the warmup"},
          schedule.style);
    visit(Field{.section = "schedule", .key = "warmup_steps", .doc = "updates of linear warmup", .min = 0},
          schedule.warmup_steps);
    visit(Field{.section = "schedule",
                .key = "warmup_tokens",
                .doc = "instead of warmup_steps: consumed tokens of linear warmup, whatever the batch size; the tokens "
                       "of a skipped step count",
                .min = 0},
          schedule.warmup_tokens);
    constexpr std::string_view kDecaying = "with schedule.style = \"linear\", \"cosine\" or \"wsd\"";
    visit(Field{.section = "schedule",
                .key = "decay_steps",
                .doc = "the update at which min_lr is reached; a skipped step is no update",
                .min = 1,
                .default_text = "the steps of the run",
                .applies = has_decay,
                .applies_when = kDecaying},
          schedule.decay_steps);
    visit(Field{.section = "schedule",
                .key = "decay_tokens",
                .doc = "instead of decay_steps: the consumed tokens at which min_lr is reached; the tokens of a "
                       "skipped step count",
                .min = 1,
                .default_text = "with warmup_tokens the tokens of the run",
                .applies = has_decay,
                .applies_when = kDecaying},
          schedule.decay_tokens);
    visit(Field{.section = "schedule",
                .key = "decay_fraction",
                .doc = "last part of the decay's length, in which the rate falls",
                .min = 0,
                .max = 1,
                .min_excluded = true,
                .applies = [](const Config& config) { return config.schedule.style == ScheduleStyle::wsd; },
                .applies_when = "with schedule.style = \"wsd\""},
          schedule.decay_fraction);
}

}  // namespace tessera::train
