// NCCL communicators: they are made without blocking, waited for with a deadline, never waited for at the end.
#pragma once

#include "exec/cuda/transport.h"

#include <nccl.h>

#include <functional>

namespace pw::cuda {

// ncclInProgress is no error. Where another process is lost it throws Unreachable: others may know why.
void check(ncclResult_t status, const char* call);

ncclUniqueId new_id();

class Communicator {
public:
    // Makes a communicator on the current GPU. Ranks of one process are made inside one group. Call wait() before its
    // use.
    Communicator(const ncclUniqueId& id, int ranks, int rank, const char* name, int most_blocks = 8);
    ~Communicator();
    Communicator(const Communicator&) = delete;  // NCCL writes to its address until wait() has returned
    Communicator& operator=(const Communicator&) = delete;

    ncclComm_t get() const { return comm_; }
    // Waits until the last call is on its stream. It throws Error (PeerSilent) after `timeout`, and Error
    // (RunFailed) once `has_stopped` says so.
    void wait(
        Ns timeout, const std::function<bool()>& has_stopped = [] { return false; }) const;
    void check_state() const;  // throws Error (RunFailed) when the peer is lost
    void abort();              // lets go what waits for the peer

private:
    ncclComm_t comm_ = nullptr;
};

}  // namespace pw::cuda
