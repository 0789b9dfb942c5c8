// Transports bring a tensor from one CUDA device to another: by copy, or by NCCL.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/training/fetch.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace pw::cuda {

// A parcel is one message. `out` is a stream of the sender, `in` one of the receiver.
struct Parcel {
    int from_device = 0, to_device = 0;  // numbers in the plan
    bool forward = true;                 // whether it is an activation; else a gradient
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    Bytes bytes = 0;
    cudaStream_t out = nullptr, in = nullptr;
};

class Transport {
public:
    virtual ~Transport() = default;
    // Puts the message on the streams: `from` may be overwritten after `out`, and `to` read after `in`.
    virtual void move(const Parcel& parcel) = 0;
    // fetch() and reduce() are called for all devices of a sum, whose compute streams have met: they put their work on
    // these. Nobody may write what is fetched before the streams meet again.
    virtual void fetch(const std::vector<int>& devices, std::span<const Fetch> all) = 0;
    // Adds up a block of each device, on as many GPUs, where reduces() says so; every one of the blocks becomes the
    // sum.
    virtual bool reduces() const { return false; }
    virtual void reduce(const std::vector<int>& /*devices*/, std::span<std::byte* const> /*blocks*/, Bytes /*bytes*/) {}
    // Throws Error (RunFailed) when a connection is lost.
    virtual void check_connections() {}
    // Lets go whatever waits for a peer.
    virtual void abort() {}
};

// A route is a pair of devices and a direction between which messages travel.
struct Route {
    int from_device, to_device;
    bool forward;
    auto operator<=>(const Route&) const = default;
};

// A network is what a transport connects. `devices` are by number in the plan and outlive it. `sums` has the devices of
// each sum that lie on several GPUs.
struct Network {
    std::vector<GpuShare*> devices;
    std::vector<Route> routes;
    std::vector<std::vector<int>> sums = {};
};

std::unique_ptr<Transport> make_copies(const Network& network);
// The transport throws Error (PeerSilent) after `timeout`. With `in_order` sums add from left to right, else as NCCL
// does.
std::unique_ptr<Transport> make_nccl(const Network& network, bool in_order, Ns timeout);

}  // namespace pw::cuda
