// Products of matrices by cuBLAS, which stores matrices column by column: its matrices are ours transposed.
#pragma once

#include "exec/cuda/layers/layers.h"

namespace pw::cuda {

template <class T>
constexpr cudaDataType kType = CUDA_R_32F;
template <>
inline constexpr cudaDataType kType<Bf16> = CUDA_R_16BF;

// A product: result (+)= factor left right, where the result has `rows` x `columns` values. Done for `batch`
// matrices.
struct Product {
    cublasOperation_t left;
    std::int64_t rows, columns, depth;
    cublasOperation_t right = CUBLAS_OP_N;
    bool accumulate = false;
    float factor = 1;
    int batch = 1;
};
// `column` and `next` are the distances, in elements, from one column to the next and from one matrix of the batch
// to the next.
struct Matrix {
    const void* data;
    std::int64_t column, next = 0;
};
struct Result {
    void* data;
    std::int64_t column, next = 0;
};

// Multiplies factors of type In, with sums in fp32 and a result of type Out.
template <class In, class Out>
void multiply(const GpuShare& device, const Product& product, const Matrix& left, const Matrix& right,
              const Result& result) {
    const auto whole = [](std::int64_t value) { return static_cast<int>(value); };
    const float factor = product.factor, old = product.accumulate ? 1 : 0;
    if (product.batch == 1)
        check(cublasGemmEx(device.cublas(), product.left, product.right, whole(product.rows), whole(product.columns),
                           whole(product.depth), &factor, left.data, kType<In>, whole(left.column), right.data,
                           kType<In>, whole(right.column), &old, result.data, kType<Out>, whole(result.column),
                           CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
    else
        check(cublasGemmStridedBatchedEx(device.cublas(), product.left, product.right, whole(product.rows),
                                         whole(product.columns), whole(product.depth), &factor, left.data, kType<In>,
                                         whole(left.column), left.next, right.data, kType<In>, whole(right.column),
                                         right.next, &old, result.data, kType<Out>, whole(result.column), result.next,
                                         product.batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmStridedBatchedEx");
}

}  // namespace pw::cuda
