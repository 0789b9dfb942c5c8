// Checks of vendor calls: check(cudaFree(p), "cudaFree").
#pragma once

#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

namespace pw::cuda {

// All of these throw Error (RunFailed) with the call and the vendor's message.
void check(cudaError_t status, const char* call);
void check(CUresult status, const char* call);
void check(cudnnStatus_t status, const char* call);
void check(cublasStatus_t status, const char* call);

// Returns a function of the driver, found at run time, since a program that links the driver does not start without
// one. Null if the driver is older than CUDA 13.
template <class Function>
Function driver_function(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const bool ok = cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &result) == cudaSuccess &&
                    result == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<Function>(found) : nullptr;
}

}  // namespace pw::cuda
