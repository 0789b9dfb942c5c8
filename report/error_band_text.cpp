#include "report/error_band_text.h"

#include "report/table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace pw {

namespace {

std::string class_of(const ErrorBand& band) {
    if (band.least_runs > 0)
        return fmt::format("calibrated by {} run{} or more", band.least_runs, band.least_runs == 1 ? "" : "s");
    if (!band.is_named)
        return "whose program has no release here";
    return band.most_devices > 0 ? fmt::format("of named programs on up to {} devices", band.most_devices)
                                 : "of named programs on more devices";
}

}  // namespace

std::string to_text(Ns step, const ErrorBand& band) {
    const auto [shortest, longest] = band_around(step, band);
    return fmt::format("{:.0f} % band: {} to {} ({} to {}), from {} predictions of published runs {}\n",
                       100 * kBandShare, print_time(shortest), print_time(longest),
                       print_signed_percent(band.shortest - 1), print_signed_percent(band.longest - 1), band.rows,
                       class_of(band));
}

Json to_json(Ns step, const ErrorBand& band) {
    const auto [shortest, longest] = band_around(step, band);
    return {{"share", kBandShare},
            {"shortest_step_ns", shortest},
            {"longest_step_ns", longest},
            {"program_is_named", band.least_runs == 0 ? Json(band.is_named) : Json(nullptr)},
            {"most_devices", band.most_devices > 0 ? Json(band.most_devices) : Json(nullptr)},
            {"least_calibrating_runs", band.least_runs},
            {"rows", band.rows},
            {"groups", band.groups}};
}

}  // namespace pw
