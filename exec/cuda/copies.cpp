#include "exec/cuda/transport.h"

#include <set>

namespace pw::cuda {

namespace {

// Transfers by copies: within a GPU, between GPUs over NVLink or PCIe if they reach each other, otherwise through
// the host, as the driver does by itself.
class Copies : public Transport {
public:
    explicit Copies(const Network& network) : devices_(network.devices) {
        for (const Route& route : network.routes)
            reach(devices_[route.from_device]->gpu(), devices_[route.to_device]->gpu());
        for (const std::vector<int>& sum : network.sums)
            for (const int to : sum)
                for (const int from : sum)
                    reach(devices_[to]->gpu(), devices_[from]->gpu());
    }

    void move(const DeviceMessage& message) override {
        copy({message.from_device, message.to_device, message.from, message.to, message.bytes}, message.out);
    }

    // The receivers do the copies.
    void fetch(const std::vector<int>&, std::span<const Fetch> all) override {
        for (const Fetch& each : all)
            copy(each, devices_[each.to_device]->stream());
    }

private:
    void copy(const Fetch& what, cudaStream_t stream) const {
        if (what.bytes == 0)
            return;
        const int from = devices_[what.from_device]->gpu(), to = devices_[what.to_device]->gpu();
        const auto bytes = static_cast<std::size_t>(what.bytes);
        if (from == to)
            check(cudaMemcpyAsync(what.to, what.from, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
        else
            check(cudaMemcpyPeerAsync(what.to, to, what.from, from, bytes, stream), "cudaMemcpyPeerAsync");
    }

    void reach(int from, int to) {
        int reachable = 0;
        if (from == to || !reached_.insert({from, to}).second)
            return;
        check(cudaDeviceCanAccessPeer(&reachable, from, to), "cudaDeviceCanAccessPeer");
        if (reachable == 0)
            return;
        const CurrentGpu current(from);
        const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
        if (status == cudaErrorPeerAccessAlreadyEnabled || status == cudaErrorTooManyPeers)
            (void)cudaGetLastError();  // clears the error: beyond the eighth peer, copies go through the host
        else
            check(status, "cudaDeviceEnablePeerAccess");
    }

    const std::vector<GpuShare*> devices_;
    std::set<std::pair<int, int>> reached_;  // pairs of GPUs
};

}  // namespace

std::unique_ptr<Transport> make_copies(const Network& network) { return std::make_unique<Copies>(network); }

}  // namespace pw::cuda
