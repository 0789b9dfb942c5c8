// Transports move tensors between CUDA devices: by copies, or by NCCL.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/cuda/places.h"
#include "exec/training/fetch.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace pw::cuda {

// A message. `out` is a stream of the sender, `in` a stream of the receiver.
struct DeviceMessage {
    int from_device = 0, to_device = 0;  // numbers in the plan
    bool forward = true;                 // true: an activation, false: a gradient
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    Bytes bytes = 0;
    cudaStream_t out = nullptr, in = nullptr;
};

class Transport {
public:
    virtual ~Transport() = default;
    // Puts the message on the streams: work after it in `out` may overwrite `from`, and work after it in `in` may
    // read `to`.
    virtual void move(const DeviceMessage& message) = 0;
    // Put an end of a message on its stream, if the peer is on another rank.
    virtual void send(const DeviceMessage& /*message*/) {}
    virtual void receive(const DeviceMessage& /*message*/) {}
    // fetch() and reduce() are called once for all devices of a sum on this rank, after their compute streams have
    // waited for each other. They put their work on these streams. The fetched bytes must not be written until the
    // streams have waited for each other again. Each fetch has at least one end on this rank. Blocks of devices on
    // remote ranks are null.
    virtual void fetch(const std::vector<int>& devices, std::span<const Fetch> all) = 0;
    // If reduces() returns true, reduce() adds up a block of each device, each on a GPU of its own. All blocks
    // become the sum.
    virtual bool reduces() const { return false; }
    virtual void reduce(const std::vector<int>& /*devices*/, std::span<std::byte* const> /*blocks*/, Bytes /*bytes*/) {}
    // Throws Error (RunFailed) if a connection is lost.
    virtual void check_connections() {}
    // Ends all waits for peers.
    virtual void abort() {}
};

// A pair of devices that exchange messages, and the direction of the messages.
struct Route {
    int from_device, to_device;
    bool forward;
    auto operator<=>(const Route&) const = default;
};

// The devices that a transport connects. `devices` are by number in the plan and outlive the transport. Devices
// of remote ranks are null. `sums` has the devices of each sum over several GPUs. All ranks have the same routes and
// sums in the same order.
struct Network {
    std::vector<GpuShare*> devices;
    std::vector<Gpu> gpus;  // by device
    std::vector<Route> routes;
    std::vector<std::vector<int>> sums = {};
    Ranks* ranks = nullptr;  // null: all devices are in this process
    int own_rank = 0;
    // Called whenever the transport waits. The wait ends if it returns true.
    std::function<bool()> has_stopped = [] { return false; };
    int most_blocks = 8;  // thread blocks of a kernel that moves a message, each on a multiprocessor
};

std::unique_ptr<Transport> make_copies(const Network& network);
// The transport throws Error (PeerSilent) after `timeout`. With `in_order` sums add from left to right, otherwise
// in NCCL's order. All ranks call it together.
std::unique_ptr<Transport> make_nccl(Network network, bool in_order, Ns timeout);

}  // namespace pw::cuda
