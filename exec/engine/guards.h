// Guards for tests of devices whose memory the host can read: they put bytes around every buffer that nobody may write,
// and NaN where nobody may read.
#pragma once

#include "exec/engine/arena.h"
#include "schedules/memory/buffers.h"

#include <vector>

namespace pw {

// Guards keep everything that is not lent at kFree: a float of such bytes is NaN. Persistent buffers are zero at first.
class Guards {
public:
    static constexpr Bytes kBytes = 64;  // guard bytes on both sides of each buffer
    static constexpr unsigned char kFree = 0xff;

    // Does what pack() does, with room for the guards.
    static Packing pack(std::vector<Buffer> buffers, int devices);

    Guards(const std::vector<Buffer>& buffers, const Packing& packing, const Arena& arena, const Plan& plan,
           int device);

    // Checks when a task is done and its memory is not yet handed on. It throws Error (RunFailed) naming the task when
    // bytes around a buffer have changed since the task before it. It frees the workspace and the buffers that die
    // there, but not those that die with the list: a message may still leave them.
    void after(int position) const;
    void end_step() const;  // called when all messages have left

private:
    bool lives_on(const Buffer& buffer) const { return buffer.first == 0 && buffer.last >= last_; }
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
