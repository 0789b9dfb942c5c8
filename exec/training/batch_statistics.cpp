#include "exec/training/batch_statistics.h"

#include <algorithm>

namespace pw {

StatisticsTable::StatisticsTable(const Kernels& kernels, const std::vector<std::byte*>& blocks,
                                 const std::vector<int>& samples) {
    const std::size_t count = blocks.size();
    const auto bytes = static_cast<Bytes>(count * (sizeof(std::byte*) + sizeof(int)));
    memory_ = kernels.reserve(bytes, "the statistics of micro-batches");
    const std::unique_ptr<Memory> written = kernels.shared(bytes);
    std::ranges::copy(blocks, reinterpret_cast<std::byte**>(written->data()));
    std::ranges::copy(samples, reinterpret_cast<int*>(written->data() + count * sizeof(std::byte*)));
    kernels.copy(written->data(), memory_->data(), bytes);
    kernels.finish();
    blocks_ = {reinterpret_cast<const std::byte* const*>(memory_->data()), count};
    samples_ = {reinterpret_cast<const int*>(memory_->data() + count * sizeof(std::byte*)), count};
}

BatchStatistics StatisticsTable::of(int first, int last, bool deferred) const {
    const auto from = static_cast<std::size_t>(first), count = static_cast<std::size_t>(last - first + 1);
    return {blocks_.subspan(from, count), samples_.subspan(from, count), deferred};
}

}  // namespace pw
