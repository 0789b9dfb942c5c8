// How far measured steps of transformers on clusters are from predicted steps, and measured differences between plans
// from predicted differences (error_bands.yaml, which bench/error_bands.py writes from results/clusters).
#pragma once

#include "workloads/units.h"

#include <utility>

namespace pw {

inline constexpr double kBandShare = 0.8;  // of a group's runs, in the mean of the groups

// What the error of a prediction depends on.
struct BandClass {
    bool is_named = false;  // the config names the training program
    int devices = 1;
    int runs = 0;  // that calibrate the config
};

// A row of the table: a class of predictions and the band around their steps. The class begins at fewer calibrating
// runs, and ends at more devices, where other rows do.
struct ErrorBand {
    bool is_named = false;  // of programs that are named, without a calibration
    int most_devices = 0;   // 0: any number
    int least_runs = 0;
    double shortest = 1, longest = 1;  // measured over predicted step
    int rows = 0, groups = 0;          // measured runs that the band is from, and their sources
};

// Returns the row of a class. A calibrated prediction has the band of its number of runs, whatever the program is.
const ErrorBand& error_band(const BandClass& of);
// Returns the least and the greatest step of the band.
std::pair<Ns, Ns> band_around(Ns step, const ErrorBand& band);

// The band around the ratio of the steps of two plans for the same model and cluster: the ratio may be this many times
// as large or as small as predicted. The band is narrower than the band of a step, because both plans share most of
// the error.
struct DifferenceBand {
    double factor = 1;
    int pairs = 0, groups = 0;
};
const DifferenceBand& difference_band();
// Returns whether the order of two steps is within the band.
bool told_apart(Ns a, Ns b);

}  // namespace pw
