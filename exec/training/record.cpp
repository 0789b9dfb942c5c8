#include "exec/training/record.h"

#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

namespace pw {

Record::Record(const Job& job, bool keeps_tensors)
    : layers_(boost::num_vertices(job.model->layers)),
      updates_(static_cast<std::size_t>(job.plan.shape.updates())),
      losses_(static_cast<std::size_t>(job.plan.shape.microbatches)) {
    if (keeps_tensors)
        for (auto& by_device : kept_)
            by_device.resize(static_cast<std::size_t>(job.plan.shape.devices));
}

std::span<double> Record::squares_of(int update) const {
    return {squares_ + static_cast<std::size_t>(update) * layers_, layers_};
}

std::vector<double> Record::gradient_norms() const {
    std::vector<double> norms;
    for (int update = 0; update < updates(); ++update) {
        const std::span<const double> squares = squares_of(update);
        norms.push_back(std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0)));
    }
    return norms;
}

void Record::keep(Moment moment, int device, std::vector<NamedTensor> tensors) {
    std::vector<NamedTensor>& all = kept_[static_cast<std::size_t>(moment)][static_cast<std::size_t>(device)];
    std::ranges::move(tensors, std::back_inserter(all));
}

}  // namespace pw
