#include "exec/engine/guards.h"

#include "workloads/error.h"

#include <algorithm>
#include <cstring>

namespace pw {

Packing Guards::pack(std::vector<Buffer> buffers, int devices) {
    for (Buffer& buffer : buffers)
        buffer.bytes += 2 * kBytes;
    Packing packing = pw::pack(buffers, devices);
    for (Bytes& offset : packing.offset)
        offset += kBytes;
    return packing;
}

Guards::Guards(const std::vector<Buffer>& buffers, const Packing& packing, const Arena& arena, const Plan& plan,
               int device)
    : buffers_(buffers),
      packing_(packing),
      arena_(arena),
      order_(plan.order[device]),
      last_(static_cast<int>(order_.size()) - 1) {
    std::memset(arena.address(0), kFree, static_cast<std::size_t>(packing.arena[device]));
    for (int number = 0; number < static_cast<int>(buffers.size()); ++number) {
        const Buffer& buffer = buffers[number];
        if (buffer.device != device)
            continue;
        own_.push_back(number);
        if (lives_on(buffer) && buffer.use != BufferUse::Workspace)
            std::memset(arena.address(packing.offset[number]), 0, static_cast<std::size_t>(buffer.bytes));
    }
}

void Guards::after(int position) const {
    for (const int number : own_) {
        const Buffer& buffer = buffers_[number];
        if (!buffer.lives_at(position))
            continue;
        check(number, position);
        if (buffer.use == BufferUse::Workspace || (buffer.last == position && position < last_))
            free(number);
    }
}

void Guards::end_step() const {
    for (const int number : own_)
        if (const Buffer& buffer = buffers_[number]; buffer.last >= last_ && !lives_on(buffer)) {
            check(number, last_);
            free(number);
        }
}

void Guards::check(int number, int position) const {
    const Bytes start = packing_.offset[number], end = start + buffers_[number].bytes;
    const auto is_free = [](std::byte byte) { return byte == std::byte{kFree}; };
    for (const Bytes guard : {start - kBytes, end})
        if (!std::all_of(arena_.address(guard), arena_.address(guard + kBytes), is_free))
            fail_with(ExitCode::RunFailed, "{} wrote {} a buffer of {} (use {}, stage {}, micro-batch {})",
                      print(order_[position]), guard == end ? "after" : "before", print_bytes(buffers_[number].bytes),
                      static_cast<int>(buffers_[number].use), buffers_[number].stage, buffers_[number].microbatch);
}

void Guards::free(int number) const {
    std::memset(arena_.address(packing_.offset[number]), kFree, static_cast<std::size_t>(buffers_[number].bytes));
}

}  // namespace pw
