// NCCL communicators: they are made without blocking, waited for with a deadline, never waited for at the end.
#pragma once

#include "exec/cuda/transport.h"

#include <nccl.h>

namespace pw::cuda {

void check(ncclResult_t status, const char* call);  // ncclInProgress is no error

ncclUniqueId new_id();

class Communicator {
public:
    // Makes a communicator on the current GPU. Ranks of one process are made inside one group. Call wait() before its
    // use.
    Communicator(const ncclUniqueId& id, int ranks, int rank, const char* name);
    ~Communicator();
    Communicator(const Communicator&) = delete;  // NCCL writes to its address until wait() has returned
    Communicator& operator=(const Communicator&) = delete;

    ncclComm_t get() const { return comm_; }
    // Waits until the last call is on its stream. It throws Error (PeerSilent) after `timeout`.
    void wait(Ns timeout) const;
    void check_state() const;  // throws Error (RunFailed) when the peer is lost
    void abort();              // lets go what waits for the peer

private:
    ncclComm_t comm_ = nullptr;
};

}  // namespace pw::cuda
