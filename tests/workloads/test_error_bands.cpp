// The table of bands around predicted steps, and the class that a prediction is of.
#include "workloads/transformers/error_bands.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(ErrorBands, AreOfTheProgramTheDevicesAndTheCalibration) {
    const ErrorBand &small = error_band({.is_named = true, .devices = 64}),
                    &large = error_band({.is_named = true, .devices = 65}),
                    &other = error_band({.is_named = false, .devices = 8});
    EXPECT_TRUE(small.is_named);
    EXPECT_EQ(small.most_devices, 64);
    EXPECT_TRUE(large.is_named);
    EXPECT_EQ(large.most_devices, 0);
    EXPECT_FALSE(other.is_named);
    for (const bool is_named : {true, false})
        for (const int devices : {1, 64, 65, 100'000}) {
            EXPECT_EQ(error_band({is_named, devices, 0}).is_named, is_named);
            EXPECT_EQ(error_band({is_named, devices, 0}).least_runs, 0);
            EXPECT_EQ(error_band({is_named, devices, 1}).least_runs, 1);
            EXPECT_EQ(error_band({is_named, devices, 2}).least_runs, 1);
            EXPECT_EQ(error_band({is_named, devices, 3}).least_runs, 3);
            EXPECT_EQ(error_band({is_named, devices, 100}).least_runs, 3);
        }
}

// A band of fewer than five groups would be the widest error of all: 0.8 x 6/5 of the weight of five groups is less
// than all of it.
TEST(ErrorBands, ComeFromEnoughGroups) {
    for (const BandClass& of :
         {BandClass{true, 64, 0}, {true, 65, 0}, {false, 64, 0}, {false, 64, 1}, {false, 64, 3}}) {
        const ErrorBand& band = error_band(of);
        EXPECT_GE(band.groups, 5);
        EXPECT_GE(band.rows, 50);
        EXPECT_LT(band.shortest, 1);
        EXPECT_GT(band.longest, 1);
    }
    EXPECT_GE(difference_band().groups, 5);
    EXPECT_GT(difference_band().factor, 1);
    EXPECT_LT(difference_band().factor, error_band({false, 64, 0}).longest);
}

TEST(ErrorBands, AreAroundTheStep) {
    const ErrorBand band{.shortest = 0.9, .longest = 1.25};
    EXPECT_EQ(band_around(1'000'000, band), std::pair(Ns{900'000}, Ns{1'250'000}));
}

TEST(ErrorBands, TellApartWhatDiffersByMoreThanTheFactor) {
    const double factor = difference_band().factor;
    const Ns step = 1'000'000'000;
    const auto times = [&](double by) { return static_cast<Ns>(by * static_cast<double>(step)); };
    EXPECT_FALSE(told_apart(step, step));
    for (const auto& [other, is_apart] : {std::pair(times(factor * 0.999), false), {times(factor * 1.001), true}}) {
        EXPECT_EQ(told_apart(step, other), is_apart);
        EXPECT_EQ(told_apart(other, step), is_apart);
    }
}

}  // namespace
}  // namespace pw
