// The movement of messages from the sender to the receiver: the payload, and the movers that carry it.
#pragma once

#include "exec/system/threads.h"
#include "workloads/units.h"

#include <cstddef>
#include <exception>
#include <span>

namespace pw {

// The data that a transfer moves if the sender keeps a copy. Its functions are called once per transfer and step.
class Payload {
public:
    virtual ~Payload() = default;
    virtual void leave(int send) = 0;   // when it returns, the sender's copy may be overwritten
    virtual void arrive(int recv) = 0;  // when it returns, the landing buffer may be read
    // Returns the memory of a message to or from another rank: the tensor that a SEND sends, or the landing buffer
    // of a RECV.
    virtual std::span<std::byte> message(int transfer) = 0;
};

// Carries messages between ranks in place of the ranks, for devices with a queue of their own.
class RankCarrier {
public:
    virtual ~RankCarrier() = default;
    virtual void enqueue(int transfer) = 0;  // puts the local end of a message into the queue
};

// A mover carries the messages that the lanes of a mailbox have started. The mailbox holds its lock during every
// call. Movers may release the lock while they copy.
class Mover {
public:
    using Lock = Condition::Lock;

    virtual ~Mover() = default;
    virtual void begin_step() {}
    // Starts a message: the SEND of a message inside the process, or the local end of a message between ranks. The
    // mover calls Mailbox::end() when the message has ended.
    virtual void start(int transfer, Lock& lock) = 0;
    // Called when the device has the memory of a position of its list.
    virtual void reach(int /*device*/, int /*position*/, Lock& /*lock*/) {}
    // Returns whether messages make progress only during calls of poll(). Threads that wait in the mailbox then
    // call poll(), which returns whether a message has ended, and throws the failure of the mover's own thread.
    virtual bool is_polled() const { return false; }
    virtual bool poll(Lock& /*lock*/) { return false; }
};

}  // namespace pw
