// Transports bring a tensor from one CUDA device to another: by copy, or by NCCL.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/cuda/places.h"
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
    // The same for one end of a message, where the other one is on another rank.
    virtual void send(const Parcel& /*parcel*/) {}
    virtual void receive(const Parcel& /*parcel*/) {}
    // fetch() and reduce() are called for all devices of a sum that are here, whose compute streams have met: they put
    // their work on these. Nobody may write what is fetched before the streams meet again. Of a fetch at least one end
    // is here; blocks of devices on other ranks are null.
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

// A network is what a transport connects. `devices` are by number in the plan and outlive it; those of other ranks are
// null. `sums` has the devices of each sum that lie on several GPUs. All ranks have the same routes and sums in the
// same order.
struct Network {
    std::vector<GpuShare*> devices;
    std::vector<Gpu> gpus;  // by device
    std::vector<Route> routes;
    std::vector<std::vector<int>> sums = {};
    Ranks* ranks = nullptr;  // null: all devices are here
    int own_rank = 0;
    // Is asked whenever the transport waits; true makes it give up.
    std::function<bool()> has_stopped = [] { return false; };
    int most_blocks = 8;  // thread blocks, each on a multiprocessor, of a kernel that moves a message
};

std::unique_ptr<Transport> make_copies(const Network& network);
// The transport throws Error (PeerSilent) after `timeout`. With `in_order` sums add from left to right, else as NCCL
// does. All ranks call it together.
std::unique_ptr<Transport> make_nccl(Network network, bool in_order, Ns timeout);

}  // namespace pw::cuda
