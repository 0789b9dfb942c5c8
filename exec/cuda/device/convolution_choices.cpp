#include "exec/cuda/device/convolution_choices.h"

namespace pw::cuda {

int ConvolutionChoices::plan_of(const PlanRequest& request, const std::function<bool(int)>& is_possible,
                                const std::function<int()>& choose) {
    const std::lock_guard lock(mutex_);
    const Key key{request.timed, request.precision, request.shape};
    if (const auto found = plans_.find(key); found != plans_.end()) {
        if (is_possible(found->second))
            return found->second;
        ++impossible_;
    }
    const int plan = choose();
    plans_.insert_or_assign(key, plan);
    return plan;
}

void ConvolutionChoices::take(const std::vector<ConvolutionChoice>& given, Precision precision) {
    const std::lock_guard lock(mutex_);
    for (const auto& [shape, plan] : given)
        plans_.insert_or_assign({true, precision, shape}, plan);
}

std::vector<ConvolutionChoice> ConvolutionChoices::timed(Precision precision) const {
    const std::lock_guard lock(mutex_);
    std::vector<ConvolutionChoice> timed;
    for (const auto& [key, plan] : plans_)
        if (std::get<bool>(key) && std::get<Precision>(key) == precision)
            timed.push_back({std::get<ConvolutionShape>(key), plan});
    return timed;
}

int ConvolutionChoices::impossible() const {
    const std::lock_guard lock(mutex_);
    return impossible_;
}

}  // namespace pw::cuda
