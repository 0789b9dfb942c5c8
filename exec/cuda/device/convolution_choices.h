// The choice of cuDNN's plans for the passes of convolutions. The choice for a shape is made once per job, so that
// equal layers and all devices of a size run the same kernels, and timings are not repeated. Choices by timing are
// stored in a profile. A run takes the choices of its profile.
#pragma once

#include "workloads/costs/convolution_choice.h"
#include "workloads/models/precision.h"

#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace pw::cuda {

struct PlanRequest {
    ConvolutionShape shape;
    Precision precision;
    bool timed;  // false: the plan follows from the shape
};

class ConvolutionChoices {
public:
    // Returns the plan that was chosen earlier, if `is_possible`, otherwise the plan of `choose`. Callers run one at a
    // time, so that timings do not disturb each other.
    int plan_of(const PlanRequest& request, const std::function<bool(int)>& is_possible,
                const std::function<int()>& choose);
    // Stores the choices of a profile: they count as chosen.
    void take(const std::vector<ConvolutionChoice>& given, Precision precision);
    // Returns all choices by timing.
    std::vector<ConvolutionChoice> timed(Precision precision) const;
    // Returns the number of stored choices that have turned out to be impossible.
    int impossible() const;

private:
    using Key = std::tuple<bool, Precision, ConvolutionShape>;  // the bool: PlanRequest::timed
    mutable std::mutex mutex_;
    std::map<Key, int> plans_;
    int impossible_ = 0;
};

}  // namespace pw::cuda
