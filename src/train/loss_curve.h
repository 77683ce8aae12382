#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/metrics.h"

namespace tessera::train {

struct LossPoint {
    double step = 0;
    double loss = 0;
};

/// A horizontal line to compare with, for example what gzip reaches.
struct LossReference {
    std::string label;
    double loss = 0;
};

struct LossCurve {
    std::string title;
    std::vector<LossPoint> training;
    std::vector<LossPoint> validation;
    std::vector<LossReference> references;
};

/// The curve as a stand-alone SVG: training loss thin, its running mean bold, validation as points, axes with round
/// ticks, a legend. Non-finite points are left out; the first steps may run out at the top so that the rest is legible.
std::string loss_curve_svg(const LossCurve& curve);

/// Writes the SVG (whole or not at all). Throws EnvironmentError if it cannot.
void write_loss_curve(const std::string& path, const LossCurve& curve);

LossCurve loss_curve_of(const MetricsHistory& history, std::string title);

}  // namespace tessera::train
