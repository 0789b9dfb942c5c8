// The work queue of a device whose calls, and those of Payload::leave(), only enqueue work.
#pragma once

#include "exec/engine/mailbox.h"

namespace pw {

// A device's thread calls these functions where it has to wait until other threads have enqueued their part, or other
// devices have done theirs. The base class is for devices whose work is done when a call returns: it never waits.
class DeviceQueue {
public:
    virtual ~DeviceQueue() = default;
    virtual void wait_for_transfer(int /*node*/) {}  // called before the next Device::run()
    // Called before a transfer is posted: a SEND's tensor, or a RECV's landing buffer, is ready at this point of
    // the queue. Later work may overwrite the copy that the edge's `earlier` SEND (-1 if there is none) has left.
    virtual void about_to_post(int /*transfer*/, int /*earlier*/) {}
    virtual void all_queued() {}        // the whole list of this step is enqueued
    virtual void wait(int /*node*/) {}  // until the node is done
    virtual void all_done() {}          // every node has been waited for
    // Returns when a node ran. Called after wait(). `by_host` is when the host called it, or moved its message.
    virtual Interval interval(int /*node*/, Interval by_host) { return by_host; }
};

}  // namespace pw
