// NCCL communicators: they are made without blocking, waits for them have a deadline, and their destruction does
// not wait.
#pragma once

#include "exec/cuda/transport.h"

#include <nccl.h>

#include <functional>

namespace pw::cuda {

// ncclInProgress is not an error. If another process is lost it throws Unreachable, since other ranks may report
// the cause.
void check(ncclResult_t status, const char* call);

ncclUniqueId new_id();

class Communicator {
public:
    // Makes a communicator on the current GPU. Ranks of one process are made inside one group. Call wait() before
    // the first use.
    Communicator(const ncclUniqueId& id, int ranks, int rank, const char* name, int most_blocks = 8);
    ~Communicator();
    Communicator(const Communicator&) = delete;  // NCCL writes to its address until wait() has returned
    Communicator& operator=(const Communicator&) = delete;

    ncclComm_t get() const { return comm_; }
    // Waits until the last call is on its stream. Throws Error (PeerSilent) after `timeout`, and Error (RunFailed)
    // when `has_stopped` returns true.
    void wait(
        Ns timeout, const std::function<bool()>& has_stopped = [] { return false; }) const;
    void check_state() const;  // throws Error (RunFailed) if the peer is lost
    void abort();              // ends all waits for the peer

private:
    ncclComm_t comm_ = nullptr;
};

}  // namespace pw::cuda
