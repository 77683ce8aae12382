#include "train/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "train/durable_file.h"

namespace tessera::train {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 540;
constexpr double kLeft = 72;
constexpr double kRight = 936;
constexpr double kTop = 60;
constexpr double kBottom = 480;
constexpr const char* kTrainingColour = "#3b6fb6";
constexpr const char* kValidationColour = "#d1495b";
constexpr const char* kReferenceColour = "#6b7280";
// More points than this cannot be told apart at this size.
constexpr std::size_t kMostPoints = 1600;

std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            default:
                if (static_cast<unsigned char>(c) >= 0x20) result += c;
        }
    }
    return result;
}

std::vector<LossPoint> finite_points(const std::vector<LossPoint>& points) {
    std::vector<LossPoint> kept;
    std::copy_if(points.begin(), points.end(), std::back_inserter(kept),
                 [](const LossPoint& point) { return std::isfinite(point.loss) && std::isfinite(point.step); });
    return kept;
}

/// Mean over a window of about a fortieth of the points: centred, narrower at the steep beginning so that it stays
/// centred there, and only backwards at the end.
std::vector<LossPoint> running_mean(const std::vector<LossPoint>& points) {
    const std::size_t half = points.size() / 80;
    std::vector<double> sums(points.size() + 1, 0.0);
    for (std::size_t i = 0; i < points.size(); ++i) sums[i + 1] = sums[i] + points[i].loss;
    std::vector<LossPoint> smooth;
    for (std::size_t i = 0; i < points.size(); ++i) {
        const std::size_t reach = std::min(half, i);
        const std::size_t end = std::min(i + reach + 1, points.size());
        smooth.push_back({points[i].step, (sums[end] - sums[i - reach]) / static_cast<double>(end - (i - reach))});
    }
    return smooth;
}

/// The lowest and highest of each group of neighbours: the outline stays as it is.
std::vector<LossPoint> thinned(const std::vector<LossPoint>& points) {
    if (points.size() <= kMostPoints) return points;
    const std::size_t group = (2 * points.size() + kMostPoints - 1) / kMostPoints;
    std::vector<LossPoint> kept;
    const auto by_loss = [](const LossPoint& a, const LossPoint& b) { return a.loss < b.loss; };
    for (std::size_t begin = 0; begin < points.size(); begin += group) {
        const auto first = points.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = points.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group, points.size()));
        const auto [low, high] = std::minmax_element(first, last, by_loss);
        kept.push_back(std::min(*low, *high, [](const auto& a, const auto& b) { return a.step < b.step; }));
        if (low != high)
            kept.push_back(std::max(*low, *high, [](const auto& a, const auto& b) { return a.step < b.step; }));
    }
    return kept;
}

struct Axis {
    double low = 0;
    double high = 1;
    double step = 1;
    int decimals = 0;
};

/// Round ticks (1, 2, 2.5 or 5 times a power of ten), about `wanted` of them.
Axis make_axis(double low, double high, double wanted) {
    if (!(high > low)) {
        const double margin = std::max(0.5, std::abs(low) * 0.1);
        low -= margin;
        high += margin;
    }
    const double rough = (high - low) / wanted;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    Axis axis{low, high, 10 * power, 0};
    for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
        if (factor * power >= rough * 0.999) {
            axis.step = factor * power;
            break;
        }
    }
    while (axis.decimals < 8 && std::abs(std::round(axis.step * std::pow(10, axis.decimals)) -
                                         axis.step * std::pow(10, axis.decimals)) > 1e-6) {
        ++axis.decimals;
    }
    return axis;
}

/// Long runs: the first steps (a fall from the logarithm of the vocabulary) would flatten all the rest, so that the
/// axis ends a little above what 98 % of the steps reach.
Axis loss_axis(const std::vector<LossPoint>& training, const std::vector<LossPoint>& validation,
               const std::vector<LossReference>& references) {
    constexpr std::size_t kShortRun = 50;
    std::vector<double> values;
    for (const LossPoint& point : training) values.push_back(point.loss);
    std::sort(values.begin(), values.end());
    double low = values.empty() ? 0 : values.front();
    double high = values.empty() ? 1 : values.back();
    if (values.size() > kShortRun) high = values[values.size() * 98 / 100];
    if (values.empty() && !validation.empty()) low = high = validation.front().loss;
    for (const LossPoint& point : validation) {
        low = std::min(low, point.loss);
        if (values.size() <= kShortRun) high = std::max(high, point.loss);
    }
    for (const LossReference& reference : references) {
        if (!std::isfinite(reference.loss)) continue;
        low = std::min(low, reference.loss);
        high = std::max(high, reference.loss);
    }
    const double margin = 0.06 * (high - low);
    return make_axis(low - margin, high + margin, 6);
}

class Plot {
public:
    Plot(Axis x, Axis y) : x_(x), y_(y) {}

    double x(double step) const { return kLeft + (step - x_.low) / (x_.high - x_.low) * (kRight - kLeft); }
    double y(double loss) const { return kBottom - (loss - y_.low) / (y_.high - y_.low) * (kBottom - kTop); }
    bool shows(double loss) const { return loss >= y_.low && loss <= y_.high; }

    std::string path(const std::vector<LossPoint>& points, const char* style) const {
        if (points.empty()) return {};
        std::string data;
        for (const LossPoint& point : points) {
            // Far outside the plot a coordinate means nothing and only strains the renderer.
            const double height = std::clamp(y(point.loss), kTop - 2000, kBottom + 2000);
            data += fmt::format("{}{:.1f} {:.1f}", data.empty() ? "M" : "L", x(point.step), height);
        }
        return fmt::format("<path d=\"{}\" fill=\"none\" {} stroke-linejoin=\"round\" clip-path=\"url(#area)\"/>\n",
                           data, style);
    }

    std::string grid() const {
        std::string svg;
        for (double tick = std::ceil(y_.low / y_.step) * y_.step; tick <= y_.high; tick += y_.step) {
            svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e5e7eb\"/>\n", kLeft,
                               kRight, y(tick), y(tick));
            svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.{}f}</text>\n", kLeft - 10,
                               y(tick) + 4.5, tick + 0.0, y_.decimals);
        }
        for (double tick = 0; tick <= x_.high * 1.0001; tick += x_.step) {
            svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\" stroke=\"#9ca3af\"/>\n", x(tick),
                               x(tick), kBottom, kBottom + 6);
            svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.{}f}</text>\n", x(tick),
                               kBottom + 22, tick, x_.decimals);
        }
        return svg + fmt::format("<path d=\"M{} {}V{}H{}\" fill=\"none\" stroke=\"#9ca3af\"/>\n", kLeft, kTop, kBottom,
                                 kRight);
    }

    std::string dots(const std::vector<LossPoint>& points) const {
        std::string svg;
        for (const LossPoint& point : points) {
            if (!shows(point.loss)) continue;
            svg += fmt::format(
                    "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" stroke=\"white\" stroke-width=\"1.2\"/>\n",
                    x(point.step), y(point.loss), kValidationColour);
        }
        return svg;
    }

    std::string reference(const LossReference& line) const {
        if (!std::isfinite(line.loss)) return {};
        return fmt::format(
                "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-dasharray=\"6 5\"/>\n"
                "<text x=\"{}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n",
                kLeft, kRight, y(line.loss), y(line.loss), kReferenceColour, kLeft + 10, y(line.loss) - 6,
                kReferenceColour, escaped(line.label));
    }

private:
    Axis x_;
    Axis y_;
};

std::string legend(const std::vector<LossPoint>& training, const std::vector<LossPoint>& smooth,
                   const std::vector<LossPoint>& validation) {
    std::string svg;
    double height = kTop + 22;
    const auto entry = [&](const std::string& mark, const std::string& label) {
        svg += fmt::format("<g transform=\"translate({}, {})\">{}<text x=\"34\" y=\"4.5\">{}</text></g>\n",
                           kRight - 232, height, mark, label);
        height += 22;
    };
    if (!training.empty()) {
        entry(fmt::format("<line x1=\"0\" x2=\"26\" y1=\"0\" y2=\"0\" stroke=\"{}\" stroke-width=\"2.4\"/>",
                          kTrainingColour),
              fmt::format("training, last {:.4g}", smooth.back().loss));
    }
    if (!validation.empty()) {
        entry(fmt::format("<circle cx=\"13\" cy=\"0\" r=\"4\" fill=\"{}\"/>", kValidationColour),
              fmt::format("validation, last {:.4g}", validation.back().loss));
    }
    const double rows = (height - kTop - 22) / 22;
    if (rows == 0) return {};
    return fmt::format(
                   "<rect x=\"{}\" y=\"{}\" width=\"240\" height=\"{}\" rx=\"4\" fill=\"white\" "
                   "fill-opacity=\"0.85\"/>\n",
                   kRight - 240, kTop + 6, rows * 22 + 10) +
           svg;
}

}  // namespace

std::string loss_curve_svg(const LossCurve& curve) {
    const std::vector<LossPoint> training = finite_points(curve.training);
    const std::vector<LossPoint> validation = finite_points(curve.validation);
    const std::vector<LossPoint> smooth = running_mean(training);
    double last_step = 1;
    for (const LossPoint& point : training) last_step = std::max(last_step, point.step);
    for (const LossPoint& point : validation) last_step = std::max(last_step, point.step);
    Axis x_axis = make_axis(0, last_step, 8);
    x_axis.step = std::max(1.0, x_axis.step);
    x_axis.decimals = x_axis.step == std::floor(x_axis.step) ? 0 : x_axis.decimals;
    const Plot plot(x_axis, loss_axis(training, validation, curve.references));
    std::string svg = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
            "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#374151\">\n"
            "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
            "<clipPath id=\"area\"><rect x=\"{2}\" y=\"{3}\" width=\"{4}\" height=\"{5}\"/></clipPath>\n",
            kWidth, kHeight, kLeft, kTop, kRight - kLeft, kBottom - kTop);
    svg += fmt::format("<text x=\"{}\" y=\"34\" font-size=\"19\" font-weight=\"bold\" fill=\"#111827\">{}</text>\n",
                       kLeft, escaped(curve.title));
    svg += plot.grid();
    for (const LossReference& line : curve.references) svg += plot.reference(line);
    svg += plot.path(thinned(training),
                     fmt::format("stroke=\"{}\" stroke-width=\"1\" stroke-opacity=\"0.35\"", kTrainingColour).c_str());
    svg += plot.path(thinned(smooth), fmt::format("stroke=\"{}\" stroke-width=\"2.4\"", kTrainingColour).c_str());
    svg += plot.path(
            validation,
            fmt::format("stroke=\"{}\" stroke-width=\"1.4\" stroke-opacity=\"0.6\"", kValidationColour).c_str());
    svg += plot.dots(validation);
    svg += legend(training, smooth, validation);
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n", (kLeft + kRight) / 2,
                       kHeight - 14);
    svg += fmt::format(
            "<text transform=\"translate(20, {}) rotate(-90)\" text-anchor=\"middle\">loss (nats per token)</text>\n",
            (kTop + kBottom) / 2);
    return svg + "</svg>\n";
}

void write_loss_curve(const std::string& path, const LossCurve& curve) {
    replace_file(path, loss_curve_svg(curve));
}

LossCurve loss_curve_of(const MetricsHistory& history, std::string title) {
    LossCurve curve;
    curve.title = std::move(title);
    for (const StepMetrics& step : history.steps) curve.training.push_back({static_cast<double>(step.step), step.loss});
    for (const EvaluationMetrics& evaluation : history.evaluations) {
        curve.validation.push_back({static_cast<double>(evaluation.step), evaluation.loss});
    }
    return curve;
}

}  // namespace tessera::train
