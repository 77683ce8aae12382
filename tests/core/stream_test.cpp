#include "core/stream.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::core {
namespace {

TEST(Stream, CpuEventsHaveCompleted) {
    const Stream stream(DeviceType::cpu, StreamKind::compute);
    EXPECT_TRUE(stream.record().query());
    EXPECT_TRUE(Event().query());
}

TEST(Stream, MetaClockFollowsWorkAndWaits) {
    Stream compute(DeviceType::meta, StreamKind::compute);
    Stream communication(DeviceType::meta, StreamKind::communication);
    compute.advance(2.0);
    communication.wait(compute.record());
    communication.advance(1.0);
    EXPECT_DOUBLE_EQ(communication.time_s(), 3.0);
    compute.advance(0.5);
    compute.wait(communication.record());
    EXPECT_DOUBLE_EQ(compute.time_s(), 3.0);
}

TEST(Event, SynchronizeWaitsForTheOtherThread) {
    const Event event = Event::pending();
    EXPECT_FALSE(event.query());
    bool done = false;
    std::thread worker([&] {
        done = true;
        event.complete();
    });
    event.synchronize();
    EXPECT_TRUE(done);
    worker.join();
}

}  // namespace
}  // namespace tessera::core
