// How messages get from one end of their lanes to the other: the payload that moves, and the ways to move it.
#pragma once

#include "exec/system/threads.h"
#include "workloads/units.h"

#include <cstddef>
#include <exception>
#include <span>

namespace pw {

// What moves with a transfer when the sender keeps a copy. Its functions are called once per transfer and step.
class Payload {
public:
    virtual ~Payload() = default;
    virtual void leave(int send) = 0;   // afterwards the sender's copy may be overwritten
    virtual void arrive(int recv) = 0;  // afterwards the landing buffer may be read
    // Returns the memory of a message to or from another rank: what the maker of a SEND wrote, or the landing buffer of
    // a RECV.
    virtual std::span<std::byte> message(int transfer) = 0;
};

// What carries messages between ranks in place of the ranks, for devices with a queue of their own.
class RankCarrier {
public:
    virtual ~RankCarrier() = default;
    virtual void cross(int transfer) = 0;  // puts the local end of a message into the queue
};

// A mover carries the messages that the lanes of a mailbox have started. The mailbox holds its lock during every call;
// movers may release it while they copy.
class Mover {
public:
    using Lock = Condition::Lock;

    virtual ~Mover() = default;
    virtual void begin_step() {}
    // Starts a message: the SEND of one inside the process, the local end of one between ranks. Sooner or later the
    // mover calls Mailbox::end() for it.
    virtual void start(int transfer, Lock& lock) = 0;
    // The device has the memory of its list's position from here on.
    virtual void reach(int /*device*/, int /*position*/, Lock& /*lock*/) {}
    // Returns whether messages end only while somebody polls: threads that wait in the mailbox then call poll(), which
    // returns whether a message has ended. It throws what the mover's own thread has failed with.
    virtual bool is_polled() const { return false; }
    virtual bool poll(Lock& /*lock*/) { return false; }
};

}  // namespace pw
