#include "core/stream.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace tessera::core {

std::string_view name_of(DeviceType type) {
    return type == DeviceType::cpu ? "cpu" : "meta";
}

std::string_view name_of(StreamKind kind) {
    switch (kind) {
        case StreamKind::compute:
            return "compute";
        case StreamKind::communication:
            return "communication";
        case StreamKind::copy:
            return "copy";
    }
    return "?";
}

struct Event::State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    double time_s = 0;
};

bool Event::query() const {
    if (!state_) return true;
    const std::lock_guard lock(state_->mutex);
    return state_->done;
}

void Event::synchronize() const {
    if (!state_) return;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->done; });
}

double Event::time_s() const {
    return state_ ? state_->time_s : 0;
}

Event Event::pending() {
    Event event;
    event.state_ = std::make_shared<State>();
    return event;
}

void Event::complete() const {
    if (!state_) return;
    {
        const std::lock_guard lock(state_->mutex);
        state_->done = true;
    }
    state_->changed.notify_all();
}

Event Stream::record() const {
    if (device_ == DeviceType::cpu) return {};
    Event event;
    event.state_ = std::make_shared<Event::State>();
    event.state_->done = true;
    event.state_->time_s = time_s_;
    return event;
}

void Stream::wait(const Event& event) {
    event.synchronize();
    time_s_ = std::max(time_s_, event.time_s());
}

}  // namespace tessera::core
