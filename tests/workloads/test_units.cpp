#include "workloads/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pw {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

struct Reading {
    const char* text;
    std::int64_t value;
};

class Times : public testing::TestWithParam<Reading> {};
TEST_P(Times, AreExactNanoseconds) { EXPECT_EQ(parse_time(GetParam().text), GetParam().value) << GetParam().text; }
INSTANTIATE_TEST_SUITE_P(Grid, Times,
                         testing::Values(Reading{"1.5 ms", 1'500'000}, Reading{"500ns", 500}, Reading{"0 s", 0},
                                         Reading{"2 s", 2'000'000'000}, Reading{"3 us", 3'000}, Reading{"0.4 ns", 0},
                                         Reading{"0.5 ns", 1}, Reading{"1.4999999999 ns", 1}, Reading{"3 µs", 3'000},
                                         Reading{"3μs", 3'000}, Reading{"1e-3 s", 1'000'000}, Reading{"0.1 us", 100},
                                         Reading{"0.1000000000000000000000000000000 us", 100},
                                         Reading{"0.09999999999999999999999999999999999999 us", 100},
                                         Reading{"1000000000000000000000000000000e-30 ns", 1},
                                         Reading{"0.000000001 s", 1}, Reading{"9223372036854775807 ns", kLargest},
                                         Reading{"9223372036.854775807 s", kLargest}));

class Sizes : public testing::TestWithParam<Reading> {};
TEST_P(Sizes, AreExactBytes) { EXPECT_EQ(parse_bytes(GetParam().text), GetParam().value) << GetParam().text; }
INSTANTIATE_TEST_SUITE_P(Grid, Sizes,
                         testing::Values(Reading{"16 GiB", std::int64_t{16} << 30}, Reading{"1.61 MB", 1'610'000},
                                         Reading{"1 kB", 1000}, Reading{"1KiB", 1024},
                                         Reading{"1 TiB", std::int64_t{1} << 40}, Reading{"1 TB", 1'000'000'000'000},
                                         Reading{"0 B", 0}, Reading{"1.61 GB", 1'610'000'000}, Reading{"inf", kLargest},
                                         Reading{"0.5 B", 1}));

// Texts without a unit, with a sign, with junk, with a leading zero, or too large are not quantities of any kind.
class Junk : public testing::TestWithParam<const char*> {};
TEST_P(Junk, IsNoQuantity) {
    EXPECT_FALSE(parse_time(GetParam()));
    EXPECT_FALSE(parse_bytes(GetParam()));
    EXPECT_FALSE(parse_bandwidth(GetParam()));
    EXPECT_FALSE(parse_flops(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Grid, Junk,
                         testing::Values("", " ", "5", "1.5", "ms", "B/s", "-1 ms", "-1 B", "+1 ms", "1. ms", ".5 ms",
                                         "1 minute", "1 gb", "1 Kb", "1 ms ", " 1 ms", "1 ms 2", "1,5 ms", "0x10 B",
                                         "010 ms", "00 B", "nan", "nan s", "inf s", "-inf", "Inf", "1e ms", "1e9999 s",
                                         "1e300 s", "1e300 B", "9223372036854775808 ns", "9300000000 s", "9000000 TiB",
                                         "1e400 B/s", "0x1p3 B/s",
                                         "99999999999999999999999999999999999999999999999999 s", "1 B/S", "1 flop/s"));

TEST(Bandwidth, IsBytesPerSecond) {
    EXPECT_EQ(parse_bandwidth("10 GB/s"), 10e9);
    EXPECT_EQ(parse_bandwidth("100 Gbit/s"), 12.5e9);
    EXPECT_EQ(parse_bandwidth("100 Gbps"), 12.5e9);
    EXPECT_EQ(parse_bandwidth("1 GiB/s"), 1073741824.0);
    EXPECT_EQ(parse_bandwidth("1.5kB/s"), 1500.0);
    EXPECT_EQ(parse_bandwidth("inf"), std::numeric_limits<double>::infinity());
    EXPECT_FALSE(parse_bandwidth("0 GB/s"));
    EXPECT_FALSE(parse_bandwidth("10 GB"));
}

TEST(Flops, ArePerSecond) {
    EXPECT_EQ(parse_flops("150 GFLOP/s"), 150e9);
    EXPECT_EQ(parse_flops("1 TFLOP/s"), 1e12);
    EXPECT_FALSE(parse_flops("0 FLOP/s"));
    EXPECT_FALSE(parse_flops("inf"));
    EXPECT_FALSE(parse_flops("150 GFLOP"));
}

// Units that differ from another one only in spelling; a missing unit is not guessed.
TEST(Meant, IsTheNearestUnit) {
    EXPECT_EQ(meant_bytes("16 gb"), "16 GB");
    EXPECT_EQ(meant_bytes("1 KB"), "1 kB");
    EXPECT_EQ(meant_bytes("10M"), "10 MB");
    EXPECT_EQ(meant_bytes("2 Mbytes"), "2 MB");
    EXPECT_EQ(meant_time("5 MS"), "5 ms");
    EXPECT_EQ(meant_time("1.5 seconds"), "1.5 s");
    EXPECT_EQ(meant_bandwidth("100 Gb/s"), "100 GB/s or 100 Gbit/s");
    EXPECT_EQ(meant_bandwidth("10 GiB"), "10 GiB/s");
    EXPECT_EQ(meant_flops("10 TFLOPS"), "10 TFLOP/s");
    EXPECT_EQ(meant_flops("10 T"), "10 TFLOP/s");
    for (const char* text : {"", "5", "16 apples", "-1 gb", "010 gb"}) {
        EXPECT_EQ(meant_bytes(text), "") << text;
        EXPECT_EQ(meant_time(text), "") << text;
    }
}

TEST(Print, KeepsFourDigits) {
    EXPECT_EQ(print_time(0), "0 ns");
    EXPECT_EQ(print_time(999), "999 ns");
    EXPECT_EQ(print_time(1000), "1.000 us");
    EXPECT_EQ(print_time(12'341'000), "12.34 ms");
    EXPECT_EQ(print_time(999'949), "999.9 us");
    EXPECT_EQ(print_time(999'960), "1.000 ms");
    EXPECT_EQ(print_time(123'456'000'000), "123.5 s");
    EXPECT_EQ(print_time(-1500), "-1.500 us");
    EXPECT_EQ(print_bytes(1023), "1023 B");
    EXPECT_EQ(print_bytes(1325000000), "1.234 GiB");
    EXPECT_EQ(print_bytes(std::int64_t{16} << 30), "16.00 GiB");
    EXPECT_EQ(print_bytes((std::int64_t{1} << 20) - 1), "1.000 MiB");
    EXPECT_EQ(print_bytes(kLargest), "inf");
}

// Texts that are printed exactly read back as the same value.
TEST(Exact, ReadsBack) {
    for (const std::int64_t value :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{999}, std::int64_t{1000}, std::int64_t{1024},
          std::int64_t{1'500'000}, std::int64_t{16} << 30, std::int64_t{123456789012345}, kLargest - 1, kLargest}) {
        EXPECT_EQ(parse_time(exact_time(value)), value);
        EXPECT_EQ(parse_bytes(exact_bytes(value)), value);
    }
    for (const double value : {1.0, 0.125, 1e10 / 3, 12.5e9, 1e-7, 1.7976931348623157e308, 0x1p40, 3.3e17}) {
        EXPECT_EQ(parse_bandwidth(exact_bandwidth(value)), value);
        EXPECT_EQ(parse_flops(exact_flops(value)), value);
    }
    EXPECT_EQ(parse_bandwidth(exact_bandwidth(INFINITY)), INFINITY);
}

TEST(Exact, TakesTheUnitWithoutFraction) {
    EXPECT_EQ(exact_time(1'500'000), "1500 us");
    EXPECT_EQ(exact_bytes(std::int64_t{16} << 30), "16 GiB");
    EXPECT_EQ(exact_bytes(1'610'000), "1610 kB");
    EXPECT_EQ(exact_bandwidth(12.5e9), "12.5 GB/s");
    EXPECT_EQ(exact_flops(150e9), "150 GFLOP/s");
}

}  // namespace
}  // namespace pw
