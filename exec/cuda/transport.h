// How a tensor gets from one CUDA device to another: by copy, or by NCCL.
#pragma once

#include "exec/cuda/device.h"

#include <functional>
#include <memory>
#include <vector>

namespace pw::cuda {

// One message. `out` is a stream of the sender, `in` one of the receiver.
struct Parcel {
    int from_device = 0, to_device = 0;  // of the plan
    bool forward = true;                 // an activation; else a gradient
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    Bytes bytes = 0;
    cudaStream_t out = nullptr, in = nullptr;
};

class Transport {
public:
    virtual ~Transport() = default;
    // Puts the message on the streams: `from` may be overwritten after `out`, `to` read after `in`.
    virtual void move(const Parcel& parcel) = 0;
    // Throws Error (RunFailed) when a connection is lost.
    virtual void check_connections() {}
    // Lets go what waits for a peer.
    virtual void abort() {}
};

// A pair of devices and a direction between which messages travel.
struct Route {
    int from_device, to_device;
    bool forward;
    auto operator<=>(const Route&) const = default;
};

// `devices` by number in the plan; they outlive the transport. Throw Error (PeerSilent) after `timeout`.
std::unique_ptr<Transport> make_copies(const std::vector<Device*>& devices, const std::vector<Route>& routes);
std::unique_ptr<Transport> make_nccl(const std::vector<Device*>& devices, const std::vector<Route>& routes, Ns timeout);

}  // namespace pw::cuda
