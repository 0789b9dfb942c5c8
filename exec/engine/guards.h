// Guards are for tests of devices whose memory the host can read. They put bytes around every buffer that no task
// may write, and NaN where no task may read.
#pragma once

#include "exec/engine/arena.h"
#include "schedules/memory/buffers.h"

#include <vector>

namespace pw {

// All memory that is not in use consists of kFree bytes: a float of such bytes is NaN. Persistent buffers are zero
// at first.
class Guards {
public:
    static constexpr Bytes kBytes = 64;  // guard bytes on both sides of each buffer
    static constexpr unsigned char kFree = 0xff;

    // Packs as pack() does, with room for the guards.
    static Packing pack(std::vector<Buffer> buffers, int devices);

    Guards(const std::vector<Buffer>& buffers, const Packing& packing, const Arena& arena, const Plan& plan,
           int device);

    // Called when a task is done and its memory is not yet reused. Throws Error (RunFailed) that names the task if
    // bytes around a buffer have changed since the previous task. Frees the workspace and the buffers that end at
    // this position, but not the buffers that end with the list: a message may still read them.
    void after(int position) const;
    void end_step() const;  // called when all messages have been sent

private:
    bool lives_on(const Buffer& buffer) const {
        return buffer.lives_on() || (buffer.first == 0 && buffer.last >= last_);
    }
    void check(int number, int position) const;
    void free(int number) const;

    const std::vector<Buffer>& buffers_;
    const Packing& packing_;
    const Arena& arena_;
    const std::vector<Task>& order_;
    const int last_;        // last position of the list
    std::vector<int> own_;  // numbers of the device's buffers
};

}  // namespace pw
