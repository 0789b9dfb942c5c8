// The matrix product by plain loops in double.
#include "tests/cuda/host_cuda/products.h"
#include "tests/cuda/host_cuda/streams.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstring>

struct cublasContext {
    int device;
    cudaStream_t stream = nullptr;
    void* workspace = nullptr;
    std::size_t workspace_bytes = 0;
};

namespace {

using namespace host_cuda;

// A matrix by columns: element (row, column), or (column, row) if transposed.
struct Matrix {
    const void* memory;
    cudaDataType type;
    int leading;
    bool transposed;

    Matrix moved(long long by) const {
        const auto* bytes = static_cast<const std::byte*>(memory);
        return {bytes + by * (type == CUDA_R_32F ? 4 : 2), type, leading, transposed};
    }
    // Returns the first `count` adjacent elements of a column, or of a row if transposed.
    void load(int line, int count, double* to) const {
        const std::size_t first = std::size_t(line) * leading;
        for (int i = 0; i < count; ++i)
            to[i] = type == CUDA_R_32F ? static_cast<const float*>(memory)[first + i]
                                       : __bfloat162float(static_cast<const __nv_bfloat16*>(memory)[first + i]);
    }
    void store(int line, int count, const double* from) const {
        const std::size_t first = std::size_t(line) * leading;
        for (int i = 0; i < count; ++i)
            if (const auto value = static_cast<float>(from[i]); type == CUDA_R_32F)
                static_cast<float*>(const_cast<void*>(memory))[first + i] = value;
            else
                static_cast<__nv_bfloat16*>(const_cast<void*>(memory))[first + i] = __float2bfloat16_rn(value);
    }
};

// Stored column by column.
std::vector<double> columns_of(const Matrix& from, int rows, int columns) {
    std::vector<double> values(std::size_t(rows) * columns), line(columns);
    for (int j = 0; !from.transposed && j < columns; ++j)
        from.load(j, rows, &values[std::size_t(j) * rows]);
    for (int i = 0; from.transposed && i < rows; ++i) {
        from.load(i, columns, line.data());
        for (int j = 0; j < columns; ++j)
            values[std::size_t(j) * rows + i] = line[j];
    }
    return values;
}

struct Sizes {
    int rows, columns, depth;
};

void multiply(const Sizes& sizes, float by, const Matrix& a, const Matrix& b, float old, const Matrix& c) {
    const auto [m, n, k] = sizes;
    const std::vector<double> columns = columns_of(b, k, n);
    std::vector<double> sums(std::size_t(m) * n), line(std::max(m, k));
    for (int i = 0; a.transposed && i < m; ++i) {
        a.load(i, k, line.data());
        for (int j = 0; j < n; ++j)
            sums[std::size_t(j) * m + i] = dot(line.data(), &columns[std::size_t(j) * k], k);
    }
    for (int l = 0; !a.transposed && l < k; ++l) {
        a.load(l, m, line.data());
        for (int j = 0; j < n; ++j)
            add_multiple(&sums[std::size_t(j) * m], columns[std::size_t(j) * k + l], line.data(), m);
    }
    for (int j = 0; j < n; ++j) {
        double* const column = &sums[std::size_t(j) * m];
        if (old != 0)
            c.load(j, m, line.data());
        for (int i = 0; i < m; ++i)
            column[i] = by * column[i] + (old == 0 ? 0 : old * line[i]);
        c.store(j, m, column);
    }
}

bool knows(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
    const bool floats = a == CUDA_R_32F && b == CUDA_R_32F && c == CUDA_R_32F;
    const bool halves = a == CUDA_R_16BF && b == CUDA_R_16BF && (c == CUDA_R_32F || c == CUDA_R_16BF);
    return floats || (halves && compute != CUBLAS_COMPUTE_32F_FAST_TF32);
}

}  // namespace

extern "C" {

const char* cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown cublas status";
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    if (current_device() < 0)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext{current_device()};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    wait_for_streams(handle->device);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId) {
    if (streamId != nullptr && streamId->device != handle->device)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->stream = streamId;
    handle->workspace = nullptr;  // as cuBLAS does
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t workspaceSizeInBytes) {
    if (reinterpret_cast<std::size_t>(workspace) % 256 != 0 || !reaches(handle->device, workspace))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = workspaceSizeInBytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int smCountTarget) {
    return smCountTarget >= 0 && smCountTarget <= 132 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void* alpha, const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t computeType, cublasGemmAlgo_t algo) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta,
                                      C, Ctype, ldc, 0, 1, computeType, algo);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void* alpha, const void* A, cudaDataType Atype,
                                          int lda, long long int strideA, const void* B, cudaDataType Btype, int ldb,
                                          long long int strideB, const void* beta, void* C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount, cublasComputeType_t computeType,
                                          cublasGemmAlgo_t) {
    const Matrix a{A, Atype, lda, transa != CUBLAS_OP_N}, b{B, Btype, ldb, transb != CUBLAS_OP_N};
    const Matrix c{C, Ctype, ldc, false};
    if (m < 0 || n < 0 || k < 0 || lda < (a.transposed ? k : m) || ldb < (b.transposed ? n : k) || ldc < m ||
        batchCount < 0 || alpha == nullptr || beta == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!knows(Atype, Btype, Ctype, computeType))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (handle->device != current_device() || !reaches(handle->device, A) || !reaches(handle->device, B) ||
        !reaches(handle->device, C))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (only_shown({{A, false}, {B, false}, {*static_cast<const float*>(beta) == 0 ? nullptr : C, false}, {C, true}}))
        return CUBLAS_STATUS_SUCCESS;
    // Most of the workspace is never used, but an overlap with its ends is detected.
    const auto spoil = [memory = static_cast<std::byte*>(handle->workspace), bytes = handle->workspace_bytes] {
        const std::size_t end = std::min<std::size_t>(bytes, 1 << 16);
        if (memory != nullptr) {
            std::memset(memory, 0xff, end);
            std::memset(memory + bytes - end, 0xff, end);
        }
    };
    const Sizes sizes{m, n, k};
    const float by = *static_cast<const float*>(alpha), old = *static_cast<const float*>(beta);
    const auto work = [=] {
        spoil();
        for (int i = 0; i < batchCount; ++i)
            multiply(sizes, by, a.moved(i * strideA), b.moved(i * strideB), old, c.moved(i * strideC));
        spoil();
    };
    return enqueue(handle->stream, work) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
