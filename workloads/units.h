// Times are integer nanoseconds, sizes are bytes, everywhere. Text carries units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

using Ns = std::int64_t;
using Bytes = std::int64_t;

// Reads "1.5 ms", "500 ns", "2 s", "3 us" or "3 µs". It returns nothing when the text is malformed, negative or without
// a unit.
std::optional<Ns> parse_time(std::string_view text);
// Reads "16 GiB", "1.61 MB" (kB = 1000, KiB = 1024). "inf" is the largest Bytes. It returns nothing when the text is
// malformed.
std::optional<Bytes> parse_bytes(std::string_view text);
// Reads bytes per second: "10 GB/s", "100 Gbit/s" or "100 Gbps", "inf". It returns nothing when the text is malformed
// or not positive.
std::optional<double> parse_bandwidth(std::string_view text);
// Reads floating point operations per second: "150 GFLOP/s". It returns nothing when the text is malformed or not
// positive.
std::optional<double> parse_flops(std::string_view text);

// These return what a malformed text may have meant: "16 GB" for "16 gb"; "100 GB/s or 100 Gbit/s" for "100 Gb/s",
// where a letter's case is a factor of eight. They return an empty text if no unit is near.
std::string meant_time(std::string_view text);
std::string meant_bytes(std::string_view text);
std::string meant_bandwidth(std::string_view text);
std::string meant_flops(std::string_view text);

// These return the names of all units that are read.
std::vector<std::string_view> time_units();
std::vector<std::string_view> size_units();
std::vector<std::string_view> bandwidth_units();
std::vector<std::string_view> rate_units();

std::string print_time(Ns time);      // "12.34 ms": four significant digits
std::string print_bytes(Bytes size);  // "1.234 GiB"

// These print text that the functions above read back to the very same value: "1500 us", "16 GiB", "12.5 GB/s".
std::string exact_time(Ns time);
std::string exact_bytes(Bytes size);
std::string exact_bandwidth(double bandwidth);
std::string exact_flops(double rate);

}  // namespace pw
