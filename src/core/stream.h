#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/device.h"

namespace tessera::core {

enum class StreamKind : std::uint8_t { compute, communication, copy };

std::string_view name_of(StreamKind kind);

/// A point in a stream's order of work. Copyable; a default-constructed event has already completed.
class Event {
public:
    Event() = default;

    /// True once all work recorded before it has finished. Never blocks.
    bool query() const;
    /// Blocks the host until the event has completed.
    void synchronize() const;
    /// The virtual time in seconds at which a meta event completes; 0 elsewhere.
    double time_s() const;

    /// An event that completes when `complete()` is called: for work that some other thread finishes (a reader, an
    /// asynchronous copy) and for tests.
    static Event pending();
    void complete() const;

private:
    struct State;
    friend class Stream;
    std::shared_ptr<State> state_;
};

/// An in-order queue of work on a device. On the CPU work runs when it is issued, so every event has completed; on
/// meta a virtual clock advances by the modelled duration of each operation, and waiting for an event moves it forward.
class Stream {
public:
    Stream(DeviceType device, StreamKind kind) : device_(device), kind_(kind) {}

    DeviceType device() const { return device_; }
    StreamKind kind() const { return kind_; }

    /// An event that completes when everything issued so far has finished.
    Event record() const;
    /// Later work of this stream starts after the event. The host is not blocked where the device can wait by itself.
    void wait(const Event& event);
    /// Blocks the host until the stream is empty.
    void synchronize() const {}

    /// Meta only: the clock in seconds, and its advance by one operation.
    double time_s() const { return time_s_; }
    void advance(double seconds) { time_s_ += seconds; }

private:
    DeviceType device_;
    StreamKind kind_;
    double time_s_ = 0;
};

}  // namespace tessera::core
