#include "workloads/stages/transients.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

namespace pw {

namespace {

// The parts of a workspace that no tensor takes, as offsets with sizes. The last one has no end. There are few, so that
// packing takes about linear time.
class Gaps {
public:
    // Returns the lowest offset with this much room, and takes it.
    Bytes take(Bytes bytes) {
        auto gap = gaps_.begin();
        while (gap->second < bytes)
            ++gap;
        const auto [offset, size] = *gap;
        gap = gaps_.erase(gap);
        if (size > bytes)
            gaps_.emplace_hint(gap, offset + bytes, size - bytes);
        return offset;
    }

    void give_back(Bytes offset, Bytes bytes) {
        auto next = gaps_.upper_bound(offset);
        if (next != gaps_.end() && next->first == offset + bytes) {
            bytes += next->second;
            next = gaps_.erase(next);
        }
        if (next != gaps_.begin())
            if (const auto before = std::prev(next); before->first + before->second == offset) {
                before->second += bytes;
                return;
            }
        gaps_.emplace_hint(next, offset, bytes);
    }

private:
    std::map<Bytes, Bytes> gaps_ = {{0, std::numeric_limits<Bytes>::max()}};
};

}  // namespace

Bytes pack_transients(std::vector<Transient> transients) {
    std::stable_sort(transients.begin(), transients.end(),
                     [](const Transient& a, const Transient& b) { return a.first < b.first; });
    Gaps gaps;
    std::multimap<int, const Transient*> living;  // by the last step
    Bytes size = 0;
    for (const Transient& transient : transients) {
        for (; !living.empty() && living.begin()->first < transient.first; living.erase(living.begin()))
            gaps.give_back(living.begin()->second->slot->offset, living.begin()->second->bytes);
        transient.slot->offset = 0;
        if (transient.bytes == 0)
            continue;
        transient.slot->offset = gaps.take(transient.bytes);
        living.emplace(transient.last, &transient);
        size = std::max(size, transient.slot->offset + transient.bytes);
    }
    return size;
}

}  // namespace pw
