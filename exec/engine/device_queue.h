// The queue of a device whose calls, and those of Payload::leave, only put work there.
#pragma once

#include "exec/engine/mailbox.h"

namespace pw {

// The thread of a device waits here until other threads have queued their part, and the devices wait for each other.
// As it is, it is the queue of a device whose work is done when a call returns: there is nothing to wait for.
class DeviceQueue {
public:
    virtual ~DeviceQueue() = default;
    virtual void wait_for_transfer(int /*node*/) {}  // called before the next Device::run()
    // Called before a transfer is posted: its SEND, or the landing buffer of its RECV, counts from here in the queue,
    // and what follows may overwrite the copy that the edge's `earlier` SEND left (-1 if there is none).
    virtual void about_to_post(int /*transfer*/, int /*earlier*/) {}
    virtual void all_queued() {}        // the whole list of this step is queued
    virtual void wait(int /*node*/) {}  // until the node has been done
    virtual void all_done() {}          // every node has been waited for
    // Returns when a node ran; called after wait(). `by_host` is when it was called, or moved.
    virtual Interval interval(int /*node*/, Interval by_host) { return by_host; }
};

}  // namespace pw
