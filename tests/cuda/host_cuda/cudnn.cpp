// The calls of cuDNN: handles, descriptors, and convolutions put on streams.
#include "tests/cuda/host_cuda/convolutions.h"
#include "tests/cuda/host_cuda/streams.h"

#include <cudnn.h>

#include <cstring>

namespace host_cuda {
static std::atomic<bool> contexts_matter{false};
void set_cudnn_contexts(bool matter) { contexts_matter = matter; }
}  // namespace host_cuda

struct cudnnContext {
    bool works_here() const {
        return device == host_cuda::current_device() &&
               (!host_cuda::contexts_matter || context == host_cuda::current_context());
    }

    int device;
    const void* context = host_cuda::current_context();
    cudaStream_t stream = nullptr;
};

namespace {

using namespace host_cuda;

struct Workspace {
    void* memory;
    std::size_t bytes;
};

cudnnStatus_t run(cudnnHandle_t handle, const Convolution& c, const float* alpha, const void* first, const void* second,
                  Workspace workspace, const float* beta, void* output) {
    if (const cudnnStatus_t status = check(c); status != CUDNN_STATUS_SUCCESS)
        return status;
    const std::size_t needs = workspace_of(c);
    if (!alpha || !beta || !first || !second || !output || (needs > 0 && !workspace.memory))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (workspace.bytes < needs)
        return CUDNN_STATUS_BAD_PARAM;
    for (const void* memory :
         {first, second, static_cast<const void*>(output), static_cast<const void*>(workspace.memory)})
        if (!handle->works_here() || !reaches(handle->device, memory))
            return CUDNN_STATUS_EXECUTION_FAILED;
    if (!is_launched(c, handle->stream->context != nullptr))
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (only_shown({{first, false}, {second, false}, {*beta == 0 ? nullptr : output, false}, {output, true}}))
        return CUDNN_STATUS_SUCCESS;
    note(c);
    const auto work = [=, a = *alpha, b = *beta] {
        // The workspace is filled with NaNs before and after the call, so that an overlap is detected.
        if (needs > 0)
            std::memset(workspace.memory, 0xff, needs);
        convolve(c, a, first, second, b, output);
        if (needs > 0)
            std::memset(workspace.memory, 0xff, needs);
    };
    return enqueue(handle->stream, work) == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t workspace_size(const Convolution& c, std::size_t* bytes) {
    *bytes = workspace_of(c);
    return check(c);
}

// Lists the supported algorithms, with algorithm 0 first and not deterministic, then the others as not supported.
template <class Perf>
cudnnStatus_t list(Convolution c, int algorithms, int requested, int* returned, Perf* results) {
    if (requested < 1)
        return CUDNN_STATUS_BAD_PARAM;
    *returned = 0;
    for (const bool wanted : {true, false})
        for (c.algorithm = 0; c.algorithm < algorithms && *returned < requested; ++c.algorithm) {
            const cudnnStatus_t status = check(c);
            if (status == CUDNN_STATUS_BAD_PARAM)
                return status;
            if ((status == CUDNN_STATUS_SUCCESS) != wanted)
                continue;
            const bool deterministic = c.algorithm != 0 || c.pass == Pass::Forward;
            results[(*returned)++] = {static_cast<decltype(results->algo)>(c.algorithm),
                                      status,
                                      wanted ? 1.f + c.algorithm : -1.f,
                                      wanted ? workspace_of(c) : 0,
                                      deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
                                      c.how.math,
                                      {}};
        }
    return CUDNN_STATUS_SUCCESS;
}

// As list(), and overwrites the output.
template <class Perf>
cudnnStatus_t find(cudnnHandle_t handle, const Convolution& c, int algorithms, void* output, int requested,
                   int* returned, Perf* results) {
    if (!handle->works_here() || !is_timed(c))
        return CUDNN_STATUS_EXECUTION_FAILED;
    cudaMemsetAsync(output, 0xff, output_of(c).bytes(), handle->stream);
    cudaStreamSynchronize(handle->stream);
    return list(c, algorithms, requested, returned, results);
}

cudnnStatus_t status_if(bool good) { return good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM; }

template <class T>
cudnnStatus_t create(T** descriptor) {
    *descriptor = new T{};
    return CUDNN_STATUS_SUCCESS;
}

template <class T>
cudnnStatus_t destroy(T* descriptor) {
    delete descriptor;
    return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
        case CUDNN_STATUS_SUCCESS:
            return "CUDNN_STATUS_SUCCESS";
        case CUDNN_STATUS_NOT_INITIALIZED:
            return "CUDNN_STATUS_NOT_INITIALIZED";
        case CUDNN_STATUS_BAD_PARAM:
            return "CUDNN_STATUS_BAD_PARAM";
        case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
            return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
        case CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH:
            return "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH";
        case CUDNN_STATUS_NOT_SUPPORTED:
            return "CUDNN_STATUS_NOT_SUPPORTED";
        case CUDNN_STATUS_INTERNAL_ERROR:
            return "CUDNN_STATUS_INTERNAL_ERROR";
        case CUDNN_STATUS_EXECUTION_FAILED:
            return "CUDNN_STATUS_EXECUTION_FAILED";
    }
    return "CUDNN_UNKNOWN_STATUS";
}

// There is no further message.
void cudnnGetLastErrorString(char* message, size_t max_size) {
    if (max_size > 0)
        message[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    if (current_device() < 0)
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext{current_device()};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    wait_for_streams(handle->device);
    return destroy(handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId) {
    if (streamId != nullptr && (streamId->device != handle->device || !handle->works_here() ||
                                (contexts_matter && streamId->context != handle->context)))
        return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
    handle->stream = streamId;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensorDesc) { return create(tensorDesc); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensorDesc) { return destroy(tensorDesc); }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensorDesc, cudnnTensorFormat_t format,
                                         cudnnDataType_t dataType, int n, int c, int h, int w) {
    *tensorDesc = {dataType, format, n, c, h, w};
    return status_if(n > 0 && c > 0 && h > 0 && w > 0);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filterDesc) { return create(filterDesc); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filterDesc) { return destroy(filterDesc); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filterDesc, cudnnDataType_t dataType,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    return cudnnSetTensor4dDescriptor(filterDesc, format, dataType, k, c, h, w);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convDesc) { return create(convDesc); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convDesc) { return destroy(convDesc); }
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convDesc, int pad_h, int pad_w, int u, int v,
                                              int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t computeType) {
    *convDesc = {pad_h, pad_w, u, v, dilation_h, dilation_w, mode, computeType, CUDNN_DEFAULT_MATH};
    return status_if(pad_h >= 0 && pad_w >= 0 && u > 0 && v > 0 && dilation_h > 0 && dilation_w > 0);
}
// The arithmetic is the same for all math types.
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convDesc, cudnnMathType_t mathType) {
    convDesc->math = mathType;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t xDesc,
                                      const void* x, const cudnnFilterDescriptor_t wDesc, const void* w,
                                      const cudnnConvolutionDescriptor_t convDesc, cudnnConvolutionFwdAlgo_t algo,
                                      void* workSpace, size_t workSpaceSizeInBytes, const void* beta,
                                      const cudnnTensorDescriptor_t yDesc, void* y) {
    return run(handle, {Pass::Forward, *xDesc, *wDesc, *yDesc, *convDesc, algo}, static_cast<const float*>(alpha), x, w,
               {workSpace, workSpaceSizeInBytes}, static_cast<const float*>(beta), y);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, const cudnnFilterDescriptor_t wDesc,
                                           const void* w, const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           const cudnnConvolutionDescriptor_t convDesc,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* workSpace,
                                           size_t workSpaceSizeInBytes, const void* beta,
                                           const cudnnTensorDescriptor_t dxDesc, void* dx) {
    return run(handle, {Pass::Data, *dxDesc, *wDesc, *dyDesc, *convDesc, algo}, static_cast<const float*>(alpha), w, dy,
               {workSpace, workSpaceSizeInBytes}, static_cast<const float*>(beta), dx);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t xDesc, const void* x,
                                             const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                             const cudnnConvolutionDescriptor_t convDesc,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* workSpace,
                                             size_t workSpaceSizeInBytes, const void* beta,
                                             const cudnnFilterDescriptor_t dwDesc, void* dw) {
    return run(handle, {Pass::Filter, *xDesc, *dwDesc, *dyDesc, *convDesc, algo}, static_cast<const float*>(alpha), x,
               dy, {workSpace, workSpaceSizeInBytes}, static_cast<const float*>(beta), dw);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t xDesc,
                                                      const cudnnFilterDescriptor_t wDesc,
                                                      const cudnnConvolutionDescriptor_t convDesc,
                                                      const cudnnTensorDescriptor_t yDesc,
                                                      cudnnConvolutionFwdAlgo_t algo, size_t* sizeInBytes) {
    return workspace_size({Pass::Forward, *xDesc, *wDesc, *yDesc, *convDesc, algo}, sizeInBytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, const cudnnFilterDescriptor_t wDesc,
                                                           const cudnnTensorDescriptor_t dyDesc,
                                                           const cudnnConvolutionDescriptor_t convDesc,
                                                           const cudnnTensorDescriptor_t dxDesc,
                                                           cudnnConvolutionBwdDataAlgo_t algo, size_t* sizeInBytes) {
    return workspace_size({Pass::Data, *dxDesc, *wDesc, *dyDesc, *convDesc, algo}, sizeInBytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t xDesc,
                                                             const cudnnTensorDescriptor_t dyDesc,
                                                             const cudnnConvolutionDescriptor_t convDesc,
                                                             const cudnnFilterDescriptor_t gradDesc,
                                                             cudnnConvolutionBwdFilterAlgo_t algo,
                                                             size_t* sizeInBytes) {
    return workspace_size({Pass::Filter, *xDesc, *gradDesc, *dyDesc, *convDesc, algo}, sizeInBytes);
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t srcDesc,
                                                     const cudnnFilterDescriptor_t filterDesc,
                                                     const cudnnConvolutionDescriptor_t convDesc,
                                                     const cudnnTensorDescriptor_t destDesc,
                                                     const int requestedAlgoCount, int* returnedAlgoCount,
                                                     cudnnConvolutionFwdAlgoPerf_t* perfResults) {
    return list({Pass::Forward, *srcDesc, *filterDesc, *destDesc, *convDesc, 0}, CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
                requestedAlgoCount, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t filterDesc,
                                                          const cudnnTensorDescriptor_t diffDesc,
                                                          const cudnnConvolutionDescriptor_t convDesc,
                                                          const cudnnTensorDescriptor_t gradDesc,
                                                          const int requestedAlgoCount, int* returnedAlgoCount,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* perfResults) {
    return list({Pass::Data, *gradDesc, *filterDesc, *diffDesc, *convDesc, 0}, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
                requestedAlgoCount, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t srcDesc,
                                                            const cudnnTensorDescriptor_t diffDesc,
                                                            const cudnnConvolutionDescriptor_t convDesc,
                                                            const cudnnFilterDescriptor_t gradDesc,
                                                            const int requestedAlgoCount, int* returnedAlgoCount,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* perfResults) {
    return list({Pass::Filter, *srcDesc, *gradDesc, *diffDesc, *convDesc, 0}, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
                requestedAlgoCount, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc,
                                                     const void*, const cudnnFilterDescriptor_t wDesc, const void*,
                                                     const cudnnConvolutionDescriptor_t convDesc,
                                                     const cudnnTensorDescriptor_t yDesc, void* y,
                                                     const int requestedAlgoCount, int* returnedAlgoCount,
                                                     cudnnConvolutionFwdAlgoPerf_t* perfResults, void*, size_t) {
    return find(handle, {Pass::Forward, *xDesc, *wDesc, *yDesc, *convDesc, 0}, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, y,
                requestedAlgoCount, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc,
                                                          const void*, const cudnnTensorDescriptor_t dyDesc,
                                                          const void*, const cudnnConvolutionDescriptor_t convDesc,
                                                          const cudnnTensorDescriptor_t dxDesc, void* dx,
                                                          const int requestedAlgoCount, int* returnedAlgoCount,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* perfResults, void*,
                                                          size_t) {
    return find(handle, {Pass::Data, *dxDesc, *wDesc, *dyDesc, *convDesc, 0}, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, dx,
                requestedAlgoCount, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc,
                                                            const void*, const cudnnTensorDescriptor_t dyDesc,
                                                            const void*, const cudnnConvolutionDescriptor_t convDesc,
                                                            const cudnnFilterDescriptor_t dwDesc, void* dw,
                                                            const int requestedAlgoCount, int* returnedAlgoCount,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* perfResults, void*,
                                                            size_t) {
    return find(handle, {Pass::Filter, *xDesc, *dwDesc, *dyDesc, *convDesc, 0}, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
                dw, requestedAlgoCount, returnedAlgoCount, perfResults);
}

}  // extern "C"
