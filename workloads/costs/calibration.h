// How much longer the parts of a step take than predicted, by measured runs (`pipewright calibrate`).
#pragma once

namespace pw {

struct Calibration {
    // How many times as long as predicted.
    double computing = 1;  // kernels: products, attention, and what the memory bounds
    double inside = 1;     // messages within a host or a domain
    double between = 1;    // messages between hosts
    double outside = 1;    // launches of kernels, and what steps take besides kernels and messages
    int runs = 0;          // measured runs that set these factors

    bool operator==(const Calibration&) const = default;
};

}  // namespace pw
