#include "exec/training/batch_data.h"

namespace pw {

std::size_t BatchData::count() const {
    return static_cast<std::size_t>(shape_.microbatches) * static_cast<std::size_t>(sizes_.full);
}

void BatchData::add_samples(const Kernels& kernels) {
    if (samples_.data() != nullptr)
        return;
    kernels.take_data(data_);
    samples_ = {kernels, count()};
}

void BatchData::add_labels(const Kernels& kernels) {
    labels_ = {kernels, count() * static_cast<std::size_t>(data_.labels_per_sample())};
    losses_ = {kernels, static_cast<std::size_t>(shape_.microbatches)};
}

void BatchData::set(const std::function<Sample(int microbatch, int number)>& sample) {
    if (samples_.data() == nullptr && labels_.data() == nullptr)
        return;
    const auto labels = static_cast<std::size_t>(data_.labels_per_sample());
    for (int mb = 0; mb < shape_.microbatches; ++mb)
        for (int k = 0; k < samples_of(mb); ++k) {
            const Sample next = sample(mb, k);
            const int at = mb * sizes_.full + k;
            if (samples_.data() != nullptr)
                samples_.data()[at] = next;
            if (labels_.data() != nullptr)
                data_.labels_at(next, {labels_.data() + static_cast<std::size_t>(at) * labels, labels});
        }
}

template <class Value>
std::span<const Value> BatchData::of(const Value* all, int per_sample, int microbatch) const {
    const std::ptrdiff_t first = std::ptrdiff_t{microbatch} * sizes_.full * per_sample;
    return all == nullptr ? std::span<const Value>{}
                          : std::span(all + first, static_cast<std::size_t>(samples_of(microbatch) * per_sample));
}

std::span<const Sample> BatchData::samples(int microbatch) const { return of<Sample>(samples_.data(), 1, microbatch); }

std::span<const int> BatchData::labels(int microbatch) const {
    return of<int>(labels_.data(), data_.labels_per_sample(), microbatch);
}

}  // namespace pw
