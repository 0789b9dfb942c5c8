// How the passes of convolutions are done in a job. A pass of a shape is chosen once, so that equal layers and all
// devices of a size run the same kernels, and timing them is not repeated. Choices that timing has made go into a
// profile; a run takes those of its profile.
#pragma once

#include "workloads/costs/convolution_choice.h"
#include "workloads/models/precision.h"

#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace pw::cuda {

struct WayRequest {
    ConvolutionShape shape;
    Precision precision;
    bool timed;  // else it follows from the shape
};

class ConvolutionWays {
public:
    // Returns the way that was chosen before, if `is_possible`, else what `choose` says. It serves one caller at a
    // time: timings must not disturb each other.
    ConvolutionWay way_of(const WayRequest& request, const std::function<bool(const ConvolutionWay&)>& is_possible,
                          const std::function<ConvolutionWay()>& choose);
    // Takes the choices of a profile: they count as chosen.
    void take(const std::vector<ConvolutionChoice>& given, Precision precision);
    // Returns all ways that timing has chosen.
    std::vector<ConvolutionChoice> timed(Precision precision) const;
    // Returns how many of the taken ways turned out not to be possible.
    int impossible() const;

private:
    using Key = std::tuple<bool, Precision, ConvolutionShape>;  // timed or not
    mutable std::mutex mutex_;
    std::map<Key, ConvolutionWay> ways_;
    int impossible_ = 0;
};

}  // namespace pw::cuda
