#include "data/batch_reader.h"

#include "core/error.h"

namespace tessera::data {

BatchSchedule constant_batches(std::int64_t batch_size) {
    return [batch_size](std::int64_t step) { return SampleRange{step * batch_size, batch_size}; };
}

BatchReader::BatchReader(const TokenDataset& dataset, BatchReaderArgs args)
    : dataset_(dataset), args_(std::move(args)), next_step_(args_.first_step) {
    TESSERA_INVARIANT(args_.schedule != nullptr && args_.depth >= 1);
    thread_ = std::thread([this] { read_ahead(); });
}

BatchReader::~BatchReader() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void BatchReader::read_ahead() {
    for (std::int64_t step = args_.first_step; step < args_.end_step; ++step) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return stopping_ || static_cast<std::int64_t>(ready_.size()) < args_.depth; });
            if (stopping_) return;
        }
        Batch batch;
        std::exception_ptr failure;
        try {
            const SampleRange range = args_.schedule(step);
            dataset_.read_samples(range.position, range.count, batch);
        } catch (...) {
            failure = std::current_exception();
        }
        const std::lock_guard lock(mutex_);
        if (failure != nullptr) {
            failure_ = failure;
        } else {
            ready_.push_back(std::move(batch));
        }
        changed_.notify_all();
        if (failure != nullptr) return;
    }
}

Batch BatchReader::next() {
    if (next_step_ >= args_.end_step) {
        core::raise<core::RunError>("the batch of step {} was asked for, but reading ends before step {}", next_step_,
                                    args_.end_step);
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || failure_ != nullptr; });
    if (ready_.empty()) std::rethrow_exception(failure_);
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    ++next_step_;
    lock.unlock();
    changed_.notify_all();
    return batch;
}

}  // namespace tessera::data
