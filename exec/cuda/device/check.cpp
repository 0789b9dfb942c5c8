#include "exec/cuda/device/check.h"

#include "workloads/error.h"

#include <string>

namespace pw::cuda {

void check(cudaError_t status, const char* call) {
    if (status == cudaSuccess)
        return;
    (void)cudaGetLastError();  // clears the error, so that the next call does not fail
    fail_with(ExitCode::RunFailed, "{}: {}", call, cudaGetErrorString(status));
}

void check(CUresult status, const char* call) {
    if (status == CUDA_SUCCESS)
        return;
    const auto text_of = driver_function<decltype(&cuGetErrorString)>("cuGetErrorString");
    const char* text = nullptr;
    if (text_of == nullptr || text_of(status, &text) != CUDA_SUCCESS || text == nullptr)
        fail_with(ExitCode::RunFailed, "{}: driver error {}", call, static_cast<int>(status));
    fail_with(ExitCode::RunFailed, "{}: {}", call, text);
}

// The names of cuDNN's errors say little. The reason is in a separate message.
void check(cudnnStatus_t status, const char* call) {
    if (status == CUDNN_STATUS_SUCCESS)
        return;
    char reason[512] = "";
    cudnnGetLastErrorString(reason, sizeof reason);
    const std::string more = reason[0] == '\0' ? "" : std::string(": ") + reason;
    fail_with(ExitCode::RunFailed, "{}: {}{}", call, cudnnGetErrorString(status), more);
}

void check(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        fail_with(ExitCode::RunFailed, "{}: {}", call, cublasGetStatusString(status));
}

}  // namespace pw::cuda
