#include "workloads/stages/transients.h"

#include <algorithm>

namespace pw {

Bytes pack_transients(std::vector<Transient> transients) {
    std::stable_sort(transients.begin(), transients.end(),
                     [](const Transient& a, const Transient& b) { return a.first < b.first; });
    std::vector<const Transient*> placed;  // by offset
    Bytes size = 0;
    for (const Transient& transient : transients) {
        Bytes offset = 0;
        for (const Transient* other : placed)
            if (other->last >= transient.first && other->slot->offset < offset + transient.bytes)
                offset = std::max(offset, other->slot->offset + other->bytes);
        transient.slot->offset = offset;
        size = std::max(size, offset + transient.bytes);
        placed.push_back(&transient);
        std::sort(placed.begin(), placed.end(),
                  [](const Transient* a, const Transient* b) { return a->slot->offset < b->slot->offset; });
    }
    return size;
}

}  // namespace pw
