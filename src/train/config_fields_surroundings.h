#pragma once
#include <string_view>

#include "train/config_field.h"

// Part of the list of config keys (config_fields.h): checkpoints, evaluation, logs and device.

namespace tessera::train {

template <typename C, typename V>
void visit_checkpoint(C& checkpoint, V& visit) {
    visit(Field{.section = "checkpoint",
                .key = "directory",
                .doc = "folder of the checkpoints",
                .kind = FieldKind::path,
                .default_text = "`checkpoints` in run.directory"},
          checkpoint.directory);
    visit(Field{.section = "checkpoint",
                .key = "interval",
                .doc = "steps between saves; 0: only at the end and on a signal",
                .min = 0},
          checkpoint.interval);
    visit(Field{.section = "checkpoint", .key = "keep", .doc = "how many of the newest stay; 0: all", .min = 0},
          checkpoint.keep);
    visit(Field{.section = "checkpoint",
                .key = "keep_every",
                .doc = "checkpoints whose step is a multiple of this stay for ever; 0: none",
                .min = 0},
          checkpoint.keep_every);
    visit(Field{.section = "checkpoint",
                .key = "resume",
                .doc = "\"auto\": the newest complete checkpoint if there is one; \"none\": start anew; a step number, "
                       "or the folder of a checkpoint or of a run: that one, or an error",
                .kind = FieldKind::resume_spec},
          checkpoint.resume);
    visit(Field{.section = "checkpoint",
                .key = "weights",
                .doc = "folder of a checkpoint or of a run whose parameters a fresh start begins with; optimizer, "
                       "step, "
                       "schedule and data begin anew, and the optimizer's files may be absent; once the run has a "
                       "checkpoint of its own, resume = \"auto\" takes that",
                .kind = FieldKind::path,
                .default_text = "none"},
          checkpoint.weights);
}

template <typename E, typename L, typename D, typename V>
void visit_surroundings(E& evaluation, L& log, D& device, V& visit) {
    visit(Field{.section = "evaluation",
                .key = "interval",
                .doc = "steps between evaluations; 0: only at the end",
                .min = 0,
                .applies = [](const Config& config) { return !config.data.validation.empty(); },
                .applies_when = "with data.validation"},
          evaluation.interval);
    visit(Field{.section = "evaluation",
                .key = "steps",
                .doc = "global batches per evaluation; 0: the whole validation set",
                .min = 0,
                .applies = [](const Config& config) { return !config.data.validation.empty(); },
                .applies_when = "with data.validation"},
          evaluation.steps);
    visit(Field{.section = "evaluation",
                .key = "at_start",
                .doc = "also evaluate before the first step of the run",
                .applies = [](const Config& config) { return !config.data.validation.empty(); },
                .applies_when = "with data.validation"},
          evaluation.at_start);
    visit(Field{.section = "log",
                .key = "interval",
                .doc = "steps between log lines; a line gives the mean time of its steps, all else of the last one",
                .min = 1},
          log.interval);
    visit(Field{.section = "log",
                .key = "progress",
                .doc = "bar, log lines or none; auto: bar on a terminal, lines elsewhere"},
          log.progress);
    visit(Field{.section = "log", .key = "loss_curve", .doc = "draw loss.svg at the end"}, log.loss_curve);
    visit(Field{.section = "log", .key = "tensorboard", .doc = "write event files for TensorBoard"}, log.tensorboard);
    visit(Field{.section = "log",
                .key = "tensorboard_directory",
                .doc = "folder of the event files",
                .kind = FieldKind::path,
                .default_text = "`tensorboard` in run.directory",
                .applies = [](const Config& config) { return config.log.tensorboard; },
                .applies_when = "with log.tensorboard = true"},
          log.tensorboard_directory);
    visit(Field{.section = "device", .key = "backend", .doc = "where kernels run", .planned = "cuda"}, device.backend);
    visit(Field{.section = "device",
                .key = "threads",
                .doc = "CPU threads; 0: every core this process may use",
                .min = 0},
          device.threads);
}

}  // namespace tessera::train
