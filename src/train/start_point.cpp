#include "train/start_point.h"

#include <fmt/format.h>

namespace tessera::train {

StartPoint find_start(const Config& config) {
    const CheckpointConfig& settings = config.checkpoint;
    StartPoint start;
    start.checkpoint = find_checkpoint(settings.directory, settings.resume);
    if (start.checkpoint) {
        start.description =
                fmt::format("resumed after step {} from {}", start.checkpoint->state().step, start.checkpoint->path());
        if (!settings.weights.empty()) {
            start.description += fmt::format(", a checkpoint of this run; checkpoint.weights '{}' was for its start",
                                             settings.weights);
        }
        return start;
    }
    start.description = fmt::format("a fresh start in {}", config.run.directory);
    if (settings.weights.empty()) return start;
    start.checkpoint = find_checkpoint(settings.directory, settings.weights, LoadParts::weights_only);
    start.load = LoadParts::weights_only;
    start.description += fmt::format(
            " with the weights of {}, after step {} of its run; optimizer, schedule and data "
            "begin anew",
            start.checkpoint->path(), start.checkpoint->state().step);
    return start;
}

}  // namespace tessera::train
