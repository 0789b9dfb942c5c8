// Green contexts: groups of 8 of a device's 132 multiprocessors, which are only counted.
#include "tests/cuda/host_cuda/streams.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <string_view>

struct CUdevResourceDesc_st {
    CUdevResource resource;
};

struct CUgreenCtx_st {
    CUdevResource resource;
};

using namespace host_cuda;

namespace {

constexpr unsigned kMultiprocessors = 132, kGroup = 8;

CUdevResource multiprocessors(int device, int split, unsigned count) {
    return {CU_DEV_RESOURCE_TYPE_SM, device, split, {count, kGroup, kGroup}};
}

template <class F>
void* address(F* function) {
    return reinterpret_cast<void*>(function);
}

}  // namespace

extern "C" {

CUresult cuGetErrorString(CUresult error, const char** pStr) {
    switch (error) {
        case CUDA_SUCCESS:
            *pStr = "no error";
            return CUDA_SUCCESS;
        case CUDA_ERROR_INVALID_VALUE:
            *pStr = "invalid argument";
            return CUDA_SUCCESS;
        case CUDA_ERROR_NO_DEVICE:
            *pStr = "no CUDA-capable device is detected";
            return CUDA_SUCCESS;
        case CUDA_ERROR_INVALID_DEVICE:
            *pStr = "invalid device ordinal";
            return CUDA_SUCCESS;
        case CUDA_ERROR_INVALID_CONTEXT:
            *pStr = "invalid device context";
            return CUDA_SUCCESS;
        case CUDA_ERROR_INVALID_RESOURCE_TYPE:
            *pStr = "invalid resource type";
            return CUDA_SUCCESS;
        case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
            *pStr = "invalid resource configuration";
            return CUDA_SUCCESS;
    }
    *pStr = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = multiprocessors(device, 0, kMultiprocessors);
    return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int useFlags, unsigned int minCount) {
    static std::atomic<int> splits{0};
    if (input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (input->host_cuda_split != 0 || useFlags != 0 || minCount > input->sm.smCount)
        return input->host_cuda_split != 0 ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_ERROR_INVALID_VALUE;
    const unsigned size = std::max(kGroup, (minCount + kGroup - 1) / kGroup * kGroup);
    const unsigned most = input->sm.smCount / size;
    const int split = ++splits;
    *nbGroups = result == nullptr ? most : std::min(*nbGroups, most);
    for (unsigned i = 0; result != nullptr && i < *nbGroups; ++i)
        result[i] = multiprocessors(input->host_cuda_device, split, size);
    if (remaining != nullptr)
        *remaining = multiprocessors(input->host_cuda_device, split, input->sm.smCount - *nbGroups * size);
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources, unsigned int nbResources) {
    static std::mutex mutex;
    static std::deque<CUdevResourceDesc_st> descriptors;  // CUDA has no call that frees one
    if (nbResources == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUdevResource sum = resources[0];
    for (unsigned i = 0; i < nbResources; ++i) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (resources[i].host_cuda_device != sum.host_cuda_device ||
            resources[i].host_cuda_split != sum.host_cuda_split)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        sum.sm.smCount += i > 0 ? resources[i].sm.smCount : 0;
    }
    std::lock_guard lock(mutex);
    *phDesc = &descriptors.emplace_back(CUdevResourceDesc_st{sum});
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
    if (desc == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(dev) || desc->resource.host_cuda_device != dev)
        return CUDA_ERROR_INVALID_DEVICE;
    *phCtx = new CUgreenCtx_st{desc->resource};
    (*phCtx)->resource.host_cuda_split = 0;  // it may be split again
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
    if (hCtx == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    delete hCtx;
    return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
    *pContext = reinterpret_cast<CUcontext>(hCtx);
    return hCtx == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// For green contexts only.
CUresult cuCtxSetCurrent(CUcontext ctx) {
    if (ctx == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    set_context(reinterpret_cast<CUgreenCtx>(ctx)->resource.host_cuda_device, ctx);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource, CUdevResourceType type) {
    if (hCtx == nullptr || type != CU_DEV_RESOURCE_TYPE_SM)
        return hCtx == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = hCtx->resource;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int) {
    if (greenCtx == nullptr || flags != CU_STREAM_NON_BLOCKING)
        return greenCtx == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    make_stream(greenCtx->resource.host_cuda_device, phStream);
    (*phStream)->context = greenCtx;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned int cudaVersion,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* driverStatus) {
    static const struct {
        std::string_view name;
        void* function;
    } kFunctions[] = {
        {"cuGetErrorString", address(cuGetErrorString)},
        {"cuDeviceGet", address(cuDeviceGet)},
        {"cuDeviceGetDevResource", address(cuDeviceGetDevResource)},
        {"cuDevSmResourceSplitByCount", address(cuDevSmResourceSplitByCount)},
        {"cuDevResourceGenerateDesc", address(cuDevResourceGenerateDesc)},
        {"cuGreenCtxCreate", address(cuGreenCtxCreate)},
        {"cuGreenCtxDestroy", address(cuGreenCtxDestroy)},
        {"cuCtxFromGreenCtx", address(cuCtxFromGreenCtx)},
        {"cuCtxSetCurrent", address(cuCtxSetCurrent)},
        {"cuGreenCtxGetDevResource", address(cuGreenCtxGetDevResource)},
        {"cuGreenCtxStreamCreate", address(cuGreenCtxStreamCreate)},
    };
    if (symbol == nullptr || funcPtr == nullptr || flags != cudaEnableDefault)
        return result(cudaErrorInvalidValue);
    const auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                    [&](const auto& known) { return known.name == symbol; });
    const bool is_known = found != std::end(kFunctions), is_old = cudaVersion < 12040;  // green contexts are from 12.4
    *funcPtr = is_known && !is_old ? found->function : nullptr;
    if (driverStatus != nullptr)
        *driverStatus = !is_known ? cudaDriverEntryPointSymbolNotFound
                        : is_old  ? cudaDriverEntryPointVersionNotSufficent
                                  : cudaDriverEntryPointSuccess;
    return result(cudaSuccess);
}

}  // extern "C"
