#include "workloads/transformers/error_bands.h"

#include "workloads/bounded.h"
#include "workloads/text/embedded.h"
#include "workloads/transformers/error_bands_text.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

namespace pw {

namespace {

constexpr int kMostRows = 1'000'000'000;
constexpr double kLeastFactor = 1e-3, kMostFactor = 1e3;

struct Bands {
    std::vector<ErrorBand> steps;
    DifferenceBand differences;
};

int count(const Yaml& at) { return static_cast<int>(at.integer(0, 0, kMostRows)); }

Bands read_bands() {
    const Yaml root = parse_embedded("the error bands of this build", kErrorBandsText);
    Bands bands;
    for (const Yaml& at : root["steps"].items()) {
        at.allow({"named", "most_devices", "least_runs", "shortest", "longest", "rows", "groups"});
        bands.steps.push_back({.is_named = at["named"].boolean(false),
                               .most_devices = count(at["most_devices"]),
                               .least_runs = count(at["least_runs"]),
                               .shortest = at["shortest"].number(1, kLeastFactor, kMostFactor),
                               .longest = at["longest"].number(1, kLeastFactor, kMostFactor),
                               .rows = count(at["rows"]),
                               .groups = count(at["groups"])});
    }
    const Yaml differences = root["differences"];
    differences.allow({"factor", "pairs", "groups"});
    bands.differences = {differences["factor"].number(1, 1, kMostFactor), count(differences["pairs"]),
                         count(differences["groups"])};
    root.source().throw_if_mistaken();
    return bands;
}

const Bands& bands_of_build() {
    static const Bands bands = read_bands();
    return bands;
}

bool is_of(const ErrorBand& band, const BandClass& of) {
    const bool is_uncalibrated = band.least_runs == 0;
    return of.runs >= band.least_runs && (of.runs == 0) == is_uncalibrated &&
           (!is_uncalibrated || band.is_named == of.is_named) &&
           (band.most_devices == 0 || of.devices <= band.most_devices);
}

}  // namespace

// Rows of a class are in the order of fewer devices first, and of more calibrating runs first.
const ErrorBand& error_band(const BandClass& of) {
    const std::vector<ErrorBand>& rows = bands_of_build().steps;
    const auto found = std::ranges::find_if(rows, [&](const ErrorBand& band) { return is_of(band, of); });
    assert(found != rows.end());
    return *found;
}

std::pair<Ns, Ns> band_around(Ns step, const ErrorBand& band) {
    const auto times = [&](double factor) { return bounded(std::round(static_cast<double>(step) * factor)); };
    return {times(band.shortest), times(band.longest)};
}

const DifferenceBand& difference_band() { return bands_of_build().differences; }

bool told_apart(Ns a, Ns b) {
    const auto [less, more] = std::minmax(a, b);
    return static_cast<double>(more) > difference_band().factor * static_cast<double>(less);
}

}  // namespace pw
