// The choice of cuDNN's algorithms for the passes of convolutions. The choice for a shape is made once per job, so
// that equal layers and all devices of a size run the same kernels, and timings are not repeated. Choices by timing
// are stored in a profile; a run takes those of its profile.
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
    bool timed;  // false: the way follows from the shape
};

class ConvolutionWays {
public:
    // Returns the way that was chosen earlier, if `is_possible`, otherwise that of `choose`. Callers run one at a
    // time, so that timings do not disturb each other.
    ConvolutionWay way_of(const WayRequest& request, const std::function<bool(const ConvolutionWay&)>& is_possible,
                          const std::function<ConvolutionWay()>& choose);
    // Stores the choices of a profile: they count as chosen.
    void take(const std::vector<ConvolutionChoice>& given, Precision precision);
    // Returns all ways that timing has chosen.
    std::vector<ConvolutionChoice> timed(Precision precision) const;
    // Returns the number of stored ways that have turned out to be impossible.
    int impossible() const;

private:
    using Key = std::tuple<bool, Precision, ConvolutionShape>;  // the bool: WayRequest::timed
    mutable std::mutex mutex_;
    std::map<Key, ConvolutionWay> ways_;
    int impossible_ = 0;
};

}  // namespace pw::cuda
