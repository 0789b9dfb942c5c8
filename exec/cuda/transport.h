// How a tensor gets from one CUDA device to another: by copy, or by NCCL.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/training/fetch.h"

#include <functional>
#include <memory>
#include <span>
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
    // Both for all devices of a sum, whose compute streams have met: on these it is put. Nobody may write what is
    // fetched before they meet again.
    virtual void fetch(const std::vector<int>& devices, std::span<const Fetch> all) = 0;
    // Adds up a block of each device, on as many GPUs, where reduces(); every one becomes the sum.
    virtual bool reduces() const { return false; }
    virtual void reduce(const std::vector<int>& /*devices*/, std::span<std::byte* const> /*blocks*/, Bytes /*bytes*/) {}
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

// What a transport connects. `devices` by number in the plan; they outlive it. `sums`: of each the devices, on several
// GPUs.
struct Network {
    std::vector<GpuShare*> devices;
    std::vector<Route> routes;
    std::vector<std::vector<int>> sums = {};
};

std::unique_ptr<Transport> make_copies(const Network& network);
// Throws Error (PeerSilent) after `timeout`. `in_order`: sums add from left to right, else as NCCL does.
std::unique_ptr<Transport> make_nccl(const Network& network, bool in_order, Ns timeout);

}  // namespace pw::cuda
