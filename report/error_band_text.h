// What is said of the band around a predicted step.
#pragma once

#include "report/json.h"
#include "workloads/transformers/error_bands.h"

#include <string>

namespace pw {

// Returns a line such as "80 % band: 3.901 s to 4.865 s (-2.9 to +21.1 %), from 231 predictions of published runs of
// named programs on up to 64 devices".
std::string to_text(Ns step, const ErrorBand& band);
Json to_json(Ns step, const ErrorBand& band);

}  // namespace pw
