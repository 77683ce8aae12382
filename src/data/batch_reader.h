#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "data/batch.h"
#include "data/dataset.h"

namespace tessera::data {

struct SampleRange {
    std::int64_t position = 0;
    std::int64_t count = 0;
};

/// The samples of each step: a function of the step only, so that the batch of step n is always the same.
using BatchSchedule = std::function<SampleRange(std::int64_t step)>;

/// Step n reads [n·batch_size, (n + 1)·batch_size).
BatchSchedule constant_batches(std::int64_t batch_size);

struct BatchReaderArgs {
    std::int64_t first_step = 0;
    /// Steps from here on are not read; next() for them is a mistake of the caller.
    std::int64_t end_step = INT64_MAX;
    BatchSchedule schedule = {};
    /// Batches read ahead.
    std::int64_t depth = 2;
};

/// Reads ahead in a thread of its own and hands out the batches of first_step, first_step + 1, ... in order. An error
/// while reading is thrown by the next() of the step it belongs to, and by every later one. The destructor waits for at
/// most the batch being read. `dataset` must live longer.
class BatchReader {
public:
    BatchReader(const TokenDataset& dataset, BatchReaderArgs args);
    ~BatchReader();
    BatchReader(const BatchReader&) = delete;
    BatchReader& operator=(const BatchReader&) = delete;

    /// The batch of the next step. Throws RunError from end_step on.
    Batch next();
    std::int64_t next_step() const { return next_step_; }

private:
    void read_ahead();

    const TokenDataset& dataset_;
    BatchReaderArgs args_;
    std::int64_t next_step_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Batch> ready_;
    std::exception_ptr failure_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace tessera::data
