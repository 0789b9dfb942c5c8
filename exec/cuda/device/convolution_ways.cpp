#include "exec/cuda/device/convolution_ways.h"

namespace pw::cuda {

ConvolutionWay ConvolutionWays::way_of(const WayRequest& request,
                                       const std::function<bool(const ConvolutionWay&)>& is_possible,
                                       const std::function<ConvolutionWay()>& choose) {
    const std::lock_guard lock(mutex_);
    const Key key{request.timed, request.precision, request.shape};
    if (const auto found = ways_.find(key); found != ways_.end()) {
        if (is_possible(found->second))
            return found->second;
        ++impossible_;
    }
    const ConvolutionWay way = choose();
    ways_.insert_or_assign(key, way);
    return way;
}

void ConvolutionWays::take(const std::vector<ConvolutionChoice>& given, Precision precision) {
    const std::lock_guard lock(mutex_);
    for (const auto& [shape, way] : given)
        ways_.insert_or_assign({true, precision, shape}, way);
}

std::vector<ConvolutionChoice> ConvolutionWays::timed(Precision precision) const {
    const std::lock_guard lock(mutex_);
    std::vector<ConvolutionChoice> timed;
    for (const auto& [key, way] : ways_)
        if (std::get<bool>(key) && std::get<Precision>(key) == precision)
            timed.push_back({std::get<ConvolutionShape>(key), way});
    return timed;
}

int ConvolutionWays::impossible() const {
    const std::lock_guard lock(mutex_);
    return impossible_;
}

}  // namespace pw::cuda
