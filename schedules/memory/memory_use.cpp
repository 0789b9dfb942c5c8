// What the buffers of a plan occupy at the positions of the lists of its devices.
#include "schedules/memory/buffers.h"

#include <algorithm>
#include <numeric>

namespace pw {

Rows by_device(const std::vector<Buffer>& buffers, int devices) {
    std::vector<int> count(static_cast<std::size_t>(devices), 0);
    for (const Buffer& buffer : buffers)
        ++count[buffer.device];
    Rows rows(count);
    for (int k = static_cast<int>(buffers.size()) - 1; k >= 0; --k)
        rows.item(buffers[k].device, --count[buffers[k].device]) = k;
    return rows;
}

std::vector<MemoryUse> memory_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers,
                                 std::span<const int> own) {
    // a device without tasks holds its weights at position 0
    std::vector<MemoryUse> use(std::max<std::size_t>(1, order.size()) + 1, MemoryUse{});
    for (const int k : own) {
        const Buffer& buffer = buffers[k];
        use[buffer.first][static_cast<int>(buffer.kind)] += buffer.bytes;
        use[buffer.last + 1][static_cast<int>(buffer.kind)] -= buffer.bytes;
        if (buffer.lives_on())
            use[0][static_cast<int>(buffer.kind)] += buffer.bytes;
    }
    for (std::size_t position = 1; position < use.size(); ++position)
        for (int kind = 0; kind < kMemoryKinds; ++kind)
            use[position][kind] += use[position - 1][kind];
    use.pop_back();
    return use;
}

std::vector<std::vector<MemoryUse>> memory_of(const Plan& plan, const std::vector<Buffer>& buffers) {
    const Rows own = by_device(buffers, plan.shape.devices);
    std::vector<std::vector<MemoryUse>> use;
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        use.push_back(memory_of(plan.order[device], buffers, own[device]));
    return use;
}

MemoryUse peak_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers, std::span<const int> own) {
    std::vector<Bytes> alive(std::max<std::size_t>(1, order.size()) + 1, 0);
    for (const int k : own) {
        alive[buffers[k].first] += buffers[k].bytes;
        alive[buffers[k].last + 1] -= buffers[k].bytes;
        if (buffers[k].lives_on())
            alive[0] += buffers[k].bytes;
    }
    std::partial_sum(alive.begin(), alive.end(), alive.begin());
    const auto peak = static_cast<int>(std::max_element(alive.begin(), alive.end()) - alive.begin());
    MemoryUse use{};
    for (const int k : own)
        if (buffers[k].lives_at(peak))
            use[static_cast<int>(buffers[k].kind)] += buffers[k].bytes;
    return use;
}

MemoryUse peak_of(const std::vector<MemoryUse>& positions) {
    MemoryUse peak{};
    for (const MemoryUse& use : positions)
        if (total(use) > total(peak))
            peak = use;
    return peak;
}

}  // namespace pw
