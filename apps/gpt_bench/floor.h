#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "layers/model_config.h"

namespace tessera::apps {

/// One linear layer of the step and how often a step multiplies by it.
struct Product {
    std::int64_t inputs = 0;
    std::int64_t outputs = 0;
    std::int64_t count = 0;
};

/// The weight matrices of a GPT: packed qkv, projection, first and second half of the feed-forward layer, head.
std::vector<Product> products_of(const layers::ModelConfig& model);

/// Seconds that one step cannot go below on this machine, as measured in the same run:
///   Σ over weights and {forward, input gradient, weight gradient} of the product timed alone (no bias, no activation)
///   + causal attention FLOPs / the best rate of those products + AdamW's bytes / memory bandwidth.
struct Floor {
    double products_s = 0;
    double attention_s = 0;
    double optimizer_s = 0;
    double best_flops_s = 0;  ///< of the products, FLOP/s
    double bandwidth_bytes_s = 0;

    double total_s() const { return products_s + attention_s + optimizer_s; }
};

struct FloorArgs {
    layers::ModelConfig model;
    std::int64_t tokens = 0;         ///< T of a micro-batch
    std::int64_t micro_batches = 0;  ///< of a step
    double attention_flops = 0;      ///< of a step, causal half
};

/// Measures a floor piece by piece on the CPU, in memory of its own. Machines are shared: call measure() between steps,
/// so that both see the same machine; the result takes medians over the calls.
class FloorBench {
public:
    explicit FloorBench(const FloorArgs& args);

    void measure();
    /// Medians over the calls of measure().
    Floor result() const;

private:
    struct Timed {
        Product product;
        int kind = 0;
        std::vector<double> seconds;
    };

    double time_product(const Timed& timed);

    FloorArgs args_;
    core::MemoryPool pool_;
    std::unique_ptr<kernels::Backend> backend_;
    core::Stream stream_;
    std::vector<Timed> timed_;
    std::vector<double> bandwidths_;
};

/// Bytes a second of y ← a·y + x over arrays of 64 MiB, each operand read and written once (no line is
/// read only to be overwritten): the kind of traffic an optimizer has.
double measure_bandwidth();

/// Bytes a second of the sum of squares of an array of about `bytes` bytes (at most 1 GiB): what is read over and over
/// may lie in part in a last cache of hundreds of MiB, and the array is to lie there as much as what it stands for.
double measure_read_bandwidth(kernels::Backend& backend, core::Stream& stream, double bytes);

/// The upper middle value of a list that is not empty.
double median(std::vector<double> values);

}  // namespace tessera::apps
