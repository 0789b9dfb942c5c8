// The status of CUDA on this machine.
#include "exec/cuda/backend.h"
#include "exec/cuda/device/device.h"

#include <fmt/format.h>

namespace pw {

namespace {

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

}  // namespace

std::string cuda_status() {
    cuda::set_up_process();
    int driver = 0, gpus = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "no NVIDIA driver";
    if (driver / 1000 < CUDART_VERSION / 1000)
        return fmt::format("driver {} is older than CUDA {}", version(driver), version(CUDART_VERSION));
    const cudaError_t status = cudaGetDeviceCount(&gpus);
    (void)cudaGetLastError();  // clears the error, which is returned here
    if (status == cudaErrorNoDevice || (status == cudaSuccess && gpus == 0))
        return "no GPU";
    return status == cudaSuccess ? "ready" : cudaGetErrorString(status);
}

}  // namespace pw
