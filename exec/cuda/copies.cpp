#include "exec/cuda/transport.h"

#include <set>

namespace pw::cuda {

namespace {

// Between devices of one GPU a copy, between GPUs over NVLink or PCIe where they reach each other, else
// through the host, as the driver does by itself.
class Copies : public Transport {
public:
    Copies(const std::vector<Device*>& devices, const std::vector<Route>& routes) : devices_(devices) {
        for (const Route& route : routes)
            reach(devices[route.from_device]->gpu(), devices[route.to_device]->gpu());
    }

    void move(const Parcel& parcel) override {
        if (parcel.bytes == 0)
            return;
        const int from = devices_[parcel.from_device]->gpu(), to = devices_[parcel.to_device]->gpu();
        const auto bytes = static_cast<std::size_t>(parcel.bytes);
        if (from == to)
            check(cudaMemcpyAsync(parcel.to, parcel.from, bytes, cudaMemcpyDeviceToDevice, parcel.out),
                  "cudaMemcpyAsync");
        else
            check(cudaMemcpyPeerAsync(parcel.to, to, parcel.from, from, bytes, parcel.out), "cudaMemcpyPeerAsync");
    }

private:
    void reach(int from, int to) {
        int reachable = 0;
        if (from == to || !reached_.insert({from, to}).second)
            return;
        check(cudaDeviceCanAccessPeer(&reachable, from, to), "cudaDeviceCanAccessPeer");
        if (reachable == 0)
            return;
        const CurrentGpu current(from);
        if (const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0); status == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError();  // forgets it
        else
            check(status, "cudaDeviceEnablePeerAccess");
    }

    const std::vector<Device*> devices_;
    std::set<std::pair<int, int>> reached_;  // of GPUs
};

}  // namespace

std::unique_ptr<Transport> make_copies(const std::vector<Device*>& devices, const std::vector<Route>& routes) {
    return std::make_unique<Copies>(devices, routes);
}

}  // namespace pw::cuda
