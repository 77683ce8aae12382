#include "zero/loss_scaler.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::zero {
namespace {

TEST(LossScaler, GrowsAfterTheWindowAndBacksOffWithHysteresis) {
    LossScaler scaler({.dynamic = true, .initial = 1024, .minimum = 1, .window = 3, .hysteresis = 2});
    for (int i = 0; i < 3; ++i) scaler.update(false);
    EXPECT_EQ(scaler.scale(), 2048);
    scaler.update(true);
    EXPECT_EQ(scaler.scale(), 2048);  // the first overflow is forgiven
    scaler.update(true);
    EXPECT_EQ(scaler.scale(), 1024);
    scaler.update(true);
    EXPECT_EQ(scaler.scale(), 512);  // and only growth forgives again
    for (int i = 0; i < 3; ++i) scaler.update(false);
    EXPECT_EQ(scaler.scale(), 1024);
    scaler.update(true);
    EXPECT_EQ(scaler.scale(), 1024);
}

TEST(LossScaler, SaysWhenItIsAtItsFloor_NU_01) {
    LossScaler scaler({.dynamic = true, .initial = 4, .minimum = 1, .window = 10, .hysteresis = 1});
    EXPECT_EQ(scaler.update(true), ScaleChange::halved);
    EXPECT_EQ(scaler.update(true), ScaleChange::halved);
    EXPECT_EQ(scaler.scale(), 1);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(scaler.update(true), ScaleChange::exhausted);
    EXPECT_EQ(scaler.scale(), 1);
    EXPECT_EQ(scaler.update(false), ScaleChange::kept);
}

TEST(LossScaler, AFixedScaleStays) {
    LossScaler scaler({.dynamic = false, .initial = 128});
    for (int i = 0; i < 5000; ++i) scaler.update(i % 2 == 0);
    EXPECT_EQ(scaler.scale(), 128);
}

TEST(LossScaler, StateSurvivesARestore) {
    LossScaler a({.dynamic = true, .initial = 64, .minimum = 1, .window = 5, .hysteresis = 2});
    for (int i = 0; i < 4; ++i) a.update(false);
    LossScaler b({.dynamic = true, .initial = 2, .minimum = 1, .window = 5, .hysteresis = 2});
    b.restore(a.state());
    a.update(false);
    b.update(false);
    EXPECT_EQ(a.scale(), 128);
    EXPECT_EQ(b.scale(), 128);
}

}  // namespace
}  // namespace tessera::zero
