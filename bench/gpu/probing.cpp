#include "bench/gpu/probing.h"

#include "exec/cuda/device/device.h"
#include "exec/engine/mailbox.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <exception>
#include <vector>

namespace pw {

using namespace cuda;

namespace {

int failures = 0;

template <class Function>
Function driver(const char* name) {
    const auto function = driver_function<Function>(name);
    if (function == nullptr)
        fail_with(ExitCode::RunFailed, "the driver has no {}", name);
    return function;
}

std::vector<CUdevResource> groups_of(CUdevice device, unsigned flags) {
    CUdevResource whole{}, rest{};
    const auto split = driver<decltype(&cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
    check(driver<decltype(&cuDeviceGetDevResource)>("cuDeviceGetDevResource")(device, &whole, CU_DEV_RESOURCE_TYPE_SM),
          "cuDeviceGetDevResource");
    unsigned count = 0;
    check(split(nullptr, &count, &whole, nullptr, flags, kGroup), "cuDevSmResourceSplitByCount");
    std::vector<CUdevResource> groups(count);
    check(split(groups.data(), &count, &whole, &rest, flags, kGroup), "cuDevSmResourceSplitByCount");
    groups.resize(count);
    return groups;
}

}  // namespace

void probe(const std::string& name, const std::function<std::string()>& check_it) {
    const Ns start = clock_now();
    const auto print = [&](const char* verdict, const std::string& text) {
        fmt::print("{:6} {:9.3f} ms  {}{}{}\n", verdict, static_cast<double>(clock_now() - start) * 1e-6, name,
                   text.empty() ? "" : ": ", text);
    };
    try {
        print("ok", check_it());
    } catch (const std::exception& error) {
        ++failures;
        print("failed", error.what());
    }
}

int failed_probes() { return failures; }

Share make_share(unsigned groups, unsigned flags) {
    set_up_process();
    check(cudaFree(nullptr), "cudaFree");
    CUdevice device = 0;
    check(driver<decltype(&cuDeviceGet)>("cuDeviceGet")(&device, 0), "cuDeviceGet");
    std::vector<CUdevResource> all = groups_of(device, flags);
    if (groups > all.size())
        fail_with(ExitCode::RunFailed, "there are {} groups", all.size());
    CUdevResourceDesc described{};
    check(driver<decltype(&cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc")(&described, all.data(), groups),
          "cuDevResourceGenerateDesc");
    Share share;
    share.groups = static_cast<unsigned>(all.size());
    check(driver<decltype(&cuGreenCtxCreate)>("cuGreenCtxCreate")(&share.context, described, device,
                                                                  CU_GREEN_CTX_DEFAULT_STREAM),
          "cuGreenCtxCreate");
    CUdevResource got{};
    check(driver<decltype(&cuGreenCtxGetDevResource)>("cuGreenCtxGetDevResource")(share.context, &got,
                                                                                  CU_DEV_RESOURCE_TYPE_SM),
          "cuGreenCtxGetDevResource");
    share.multiprocessors = got.sm.smCount;
    for (cudaStream_t& stream : share.streams)
        check(driver<decltype(&cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate")(&stream, share.context,
                                                                                  CU_STREAM_NON_BLOCKING, 0),
              "cuGreenCtxStreamCreate");
    return share;
}

void enter(const Share& share) {
    CUcontext context = nullptr;
    check(driver<decltype(&cuCtxFromGreenCtx)>("cuCtxFromGreenCtx")(&context, share.context), "cuCtxFromGreenCtx");
    check(driver<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent")(context), "cuCtxPushCurrent");
}

cudnnHandle_t cudnn_on(cudaStream_t stream) {
    cudnnHandle_t made = nullptr;
    check(cudnnCreate(&made), "cudnnCreate");
    check(cudnnSetStream(made, stream), "cudnnSetStream");
    return made;
}

}  // namespace pw
