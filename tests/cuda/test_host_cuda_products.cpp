// cuDNN and cuBLAS in the stand-in of CUDA: convolutions and matrix products against direct formulas.
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/cuda_ok.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace {

// Memory of device 0, with a copy of its values on the host. Small integers are exact in both types.
class Values {
public:
    Values(bool half, std::size_t count) : half_(half), count_(count) {
        EXPECT_OK(cudaMalloc(&memory, count * (half ? 2 : 4)));
    }
    ~Values() { EXPECT_OK(cudaFree(memory)); }
    Values(const Values&) = delete;
    Values& operator=(const Values&) = delete;

    void set(const std::vector<double>& values) {
        for (std::size_t i = 0; i < count_; ++i)
            if (half_)
                static_cast<__nv_bfloat16*>(memory)[i] = __float2bfloat16_rn(static_cast<float>(values[i]));
            else
                static_cast<float*>(memory)[i] = static_cast<float>(values[i]);
    }
    std::vector<double> get() const {
        std::vector<double> values(count_);
        for (std::size_t i = 0; i < count_; ++i)
            values[i] =
                half_ ? __bfloat162float(static_cast<__nv_bfloat16*>(memory)[i]) : static_cast<float*>(memory)[i];
        return values;
    }

    void* memory = nullptr;

private:
    const bool half_;
    const std::size_t count_;
};

std::vector<double> digits(std::size_t count, unsigned seed) {
    std::vector<double> values(count);
    for (double& value : values)
        value = static_cast<int>((seed = seed * 1664525 + 1013904223) >> 24) % 3 - 1;
    return values;
}

// --- convolutions

struct Shape4 {
    int n, c, h, w;  // n of a filter is its number of outputs
    std::size_t count() const { return static_cast<std::size_t>(n * c * h * w); }
};

struct ConvCase {
    bool half, nhwc;
    int stride, pad, dilation, filter;
};

class HostCudnn : public testing::TestWithParam<ConvCase> {
protected:
    HostCudnn() {
        const ConvCase& p = GetParam();
        const auto out = [&](int in) { return (in + 2 * p.pad - (p.filter - 1) * p.dilation - 1) / p.stride + 1; };
        y_shape = {x_shape.n, 5, out(x_shape.h), out(x_shape.w)};
        w_shape = {5, x_shape.c, p.filter, p.filter};
    }

    void SetUp() override {
        const auto format = GetParam().nhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
        const auto type = GetParam().half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
        ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        ASSERT_OK(cudnnCreate(&handle));
        ASSERT_OK(cudnnSetStream(handle, stream));
        ASSERT_OK(cudnnCreateTensorDescriptor(&x));
        ASSERT_OK(cudnnCreateTensorDescriptor(&y));
        ASSERT_OK(cudnnCreateFilterDescriptor(&w));
        ASSERT_OK(cudnnCreateConvolutionDescriptor(&conv));
        ASSERT_OK(cudnnSetTensor4dDescriptor(x, format, type, x_shape.n, x_shape.c, x_shape.h, x_shape.w));
        ASSERT_OK(cudnnSetTensor4dDescriptor(y, format, type, y_shape.n, y_shape.c, y_shape.h, y_shape.w));
        ASSERT_OK(cudnnSetFilter4dDescriptor(w, type, format, w_shape.n, w_shape.c, w_shape.h, w_shape.w));
        const int pad = GetParam().pad, stride = GetParam().stride, dilation = GetParam().dilation;
        ASSERT_OK(cudnnSetConvolution2dDescriptor(conv, pad, pad, stride, stride, dilation, dilation,
                                                  CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
        ASSERT_OK(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH));
    }
    void TearDown() override {
        EXPECT_OK(cudnnDestroyConvolutionDescriptor(conv));
        EXPECT_OK(cudnnDestroyFilterDescriptor(w));
        EXPECT_OK(cudnnDestroyTensorDescriptor(y));
        EXPECT_OK(cudnnDestroyTensorDescriptor(x));
        EXPECT_OK(cudnnDestroy(handle));
        EXPECT_OK(cudaStreamDestroy(stream));
    }

    std::size_t at(const Shape4& s, int n, int c, int h, int w_) const {
        return static_cast<std::size_t>(GetParam().nhwc ? ((n * s.h + h) * s.w + w_) * s.c + c
                                                        : ((n * s.c + c) * s.h + h) * s.w + w_);
    }

    // y = x * w, and the gradients of sum(dy y), by their definitions.
    void add_products(const std::vector<double>* xs, const std::vector<double>* ws, const std::vector<double>* ys,
                      std::vector<double>& sum) const {
        const ConvCase& p = GetParam();
        for (int n = 0; n < y_shape.n; ++n)
            for (int k = 0; k < y_shape.c; ++k)
                for (int i = 0; i < y_shape.h; ++i)
                    for (int j = 0; j < y_shape.w; ++j)
                        for (int c = 0; c < x_shape.c; ++c)
                            for (int h = 0; h < x_shape.h; ++h)
                                for (int v = 0; v < x_shape.w; ++v) {
                                    const int r = h + p.pad - i * p.stride, s = v + p.pad - j * p.stride;
                                    if (r < 0 || r % p.dilation != 0 || r / p.dilation >= p.filter || s < 0 ||
                                        s % p.dilation != 0 || s / p.dilation >= p.filter)
                                        continue;
                                    const auto xi = at(x_shape, n, c, h, v), yi = at(y_shape, n, k, i, j);
                                    const auto wi = at(w_shape, k, c, r / p.dilation, s / p.dilation);
                                    const auto to = !xs ? xi : !ws ? wi : yi;
                                    sum[to] += (xs ? (*xs)[xi] : 1) * (ws ? (*ws)[wi] : 1) * (ys ? (*ys)[yi] : 1);
                                }
    }

    // Runs `pass(beta, output, workspace)` with a fresh output, and again on its own result.
    template <class Pass>
    void expect(const std::vector<double>& sums, std::size_t workspace_bytes, Pass pass) {
        Values output(GetParam().half, sums.size()), workspace(false, workspace_bytes / 4);
        std::vector<double> once(sums), twice(sums);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            once[i] = 0.5 * sums[i];
            twice[i] = 0.5 * sums[i] + 2 * once[i];
        }
        ASSERT_OK(pass(0.f, output.memory, workspace.memory));
        ASSERT_OK(cudaStreamSynchronize(stream));
        EXPECT_EQ(output.get(), once);
        ASSERT_OK(pass(2.f, output.memory, workspace.memory));
        ASSERT_OK(cudaStreamSynchronize(stream));
        EXPECT_EQ(output.get(), twice);
        EXPECT_TRUE(std::isnan(workspace.get()[0]));
    }

    const Shape4 x_shape{2, 3, 7, 6};
    Shape4 y_shape{}, w_shape{};
    const float half_of_it = 0.5f;
    cudaStream_t stream{};
    cudnnHandle_t handle{};
    cudnnTensorDescriptor_t x{}, y{};
    cudnnFilterDescriptor_t w{};
    cudnnConvolutionDescriptor_t conv{};
};

TEST_P(HostCudnn, ConvolvesByTheFormula) {
    const bool half = GetParam().half;
    const auto xs = digits(x_shape.count(), 1), ws = digits(w_shape.count(), 2), dys = digits(y_shape.count(), 3);
    std::vector<double> ys(dys.size()), dxs(xs.size()), dws(ws.size());
    add_products(&xs, &ws, nullptr, ys);
    add_products(nullptr, &ws, &dys, dxs);
    add_products(&xs, nullptr, &dys, dws);
    Values x_memory(half, xs.size()), w_memory(half, ws.size()), dy_memory(half, dys.size());
    x_memory.set(xs);
    w_memory.set(ws);
    dy_memory.set(dys);

    std::size_t bytes = 0;
    const auto forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    ASSERT_OK(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, conv, y, forward, &bytes));
    expect(ys, bytes, [&](float beta, void* output, void* workspace) {
        return cudnnConvolutionForward(handle, &half_of_it, x, x_memory.memory, w, w_memory.memory, conv, forward,
                                       workspace, bytes, &beta, y, output);
    });
    const auto data = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    ASSERT_OK(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, conv, x, data, &bytes));
    expect(dxs, bytes, [&](float beta, void* output, void* workspace) {
        return cudnnConvolutionBackwardData(handle, &half_of_it, w, w_memory.memory, y, dy_memory.memory, conv, data,
                                            workspace, bytes, &beta, x, output);
    });
    const auto filter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
    ASSERT_OK(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, conv, w, filter, &bytes));
    expect(dws, bytes, [&](float beta, void* output, void* workspace) {
        return cudnnConvolutionBackwardFilter(handle, &half_of_it, x, x_memory.memory, y, dy_memory.memory, conv,
                                              filter, workspace, bytes, &beta, w, output);
    });
}

TEST_P(HostCudnn, ListsSupportedAlgorithms) {
    const bool half = GetParam().half;
    Values xs(half, x_shape.count()), ws(half, w_shape.count()), ys(half, y_shape.count());
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT> found{};
    int count = 0;
    ASSERT_OK(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, conv, x, static_cast<int>(found.size()), &count,
                                                          found.data()));
    EXPECT_EQ(count, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT);
    EXPECT_EQ(found[0].algo, half ? CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 : CUDNN_CONVOLUTION_BWD_DATA_ALGO_0);
    EXPECT_EQ(found[0].determinism, half ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC);
    EXPECT_EQ(found[2].status, CUDNN_STATUS_NOT_SUPPORTED);
    xs.set(digits(x_shape.count(), 1));
    ASSERT_OK(cudnnFindConvolutionBackwardDataAlgorithmEx(handle, w, ws.memory, y, ys.memory, conv, x, xs.memory, 1,
                                                          &count, found.data(), nullptr, 0));
    EXPECT_EQ(count, 1);
    EXPECT_TRUE(std::isnan(xs.get()[0]));  // a timing overwrites the output
    const float one = 1, zero = 0;
    Values workspace(false, 1);
    EXPECT_EQ(cudnnConvolutionBackwardData(handle, &one, w, ws.memory, y, ys.memory, conv,
                                           CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, workspace.memory, 4, &zero, x, xs.memory),
              CUDNN_STATUS_BAD_PARAM);
    EXPECT_EQ(cudnnConvolutionBackwardData(handle, &one, w, ws.memory, y, ys.memory, conv,
                                           CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, nullptr, 0, &zero, x, xs.memory),
              CUDNN_STATUS_NOT_SUPPORTED);
    ASSERT_OK(cudnnSetConvolution2dDescriptor(conv, 9, 9, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    std::size_t bytes = 0;
    EXPECT_EQ(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, conv, y,
                                                      CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, &bytes),
              CUDNN_STATUS_BAD_PARAM);  // the shapes do not fit
}

INSTANTIATE_TEST_SUITE_P(Shapes, HostCudnn,
                         testing::Values(ConvCase{false, true, 1, 1, 1, 3}, ConvCase{false, true, 2, 3, 1, 5},
                                         ConvCase{false, false, 2, 1, 1, 3}, ConvCase{false, true, 1, 2, 2, 3},
                                         ConvCase{false, true, 2, 0, 1, 1}, ConvCase{true, true, 1, 1, 1, 3},
                                         ConvCase{true, true, 2, 3, 1, 5}, ConvCase{true, true, 2, 0, 1, 1}));

// --- matrix products

class HostCublas : public testing::TestWithParam<std::tuple<int, bool, bool>> {};

TEST_P(HostCublas, MultipliesByTheFormula) {
    const auto [halves, transpose_a, transpose_b] = GetParam();
    const bool half = halves > 0, half_out = halves > 1;
    const int m = 4, n = 5, k = 7, lda = 9, ldb = 8, ldc = 6;
    const auto as = digits(lda * 7, 4), bs = digits(ldb * 7, 5), cs = digits(ldc * n, 6);
    Values a(half, as.size()), b(half, bs.size()), c(half_out, cs.size()), workspace(false, 64);
    a.set(as);
    b.set(bs);
    c.set(cs);
    std::vector<double> expected(cs);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            double sum = 0;
            for (int l = 0; l < k; ++l)
                sum += as[transpose_a ? i * lda + l : l * lda + i] * bs[transpose_b ? l * ldb + j : j * ldb + l];
            expected[j * ldc + i] = 2 * sum - cs[j * ldc + i];
        }
    cudaStream_t stream{};
    cublasHandle_t handle{};
    ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_OK(cublasCreate(&handle));
    ASSERT_OK(cublasSetStream(handle, stream));
    ASSERT_OK(cublasSetWorkspace(handle, workspace.memory, 256));
    ASSERT_OK(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH));
    ASSERT_OK(cublasSetSmCountTarget(handle, 24));
    const float two = 2, minus_one = -1;
    const auto type = half ? CUDA_R_16BF : CUDA_R_32F, type_out = half_out ? CUDA_R_16BF : CUDA_R_32F;
    const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    ASSERT_OK(cublasGemmEx(handle, op(transpose_a), op(transpose_b), m, n, k, &two, a.memory, type, lda, b.memory, type,
                           ldb, &minus_one, c.memory, type_out, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    ASSERT_OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(c.get(), expected);
    EXPECT_EQ(cublasGemmEx(handle, op(transpose_a), op(transpose_b), m, n, k, &two, a.memory, type, 3, b.memory, type,
                           ldb, &minus_one, c.memory, type_out, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_OK(cublasDestroy(handle));
    EXPECT_OK(cudaStreamDestroy(stream));
}

INSTANTIATE_TEST_SUITE_P(Transposes, HostCublas,
                         testing::Combine(testing::Range(0, 3), testing::Bool(), testing::Bool()));

TEST(HostCublasBatches, AreProductsOneByOne) {
    const int m = 3, n = 2, k = 4, batch = 3;
    const std::size_t size_a = 15, size_c = 7;  // with a gap after each matrix; all share b
    const auto as = digits(batch * size_a, 1), bs = digits(k * n, 2), cs = digits(batch * size_c, 3);
    Values a(false, as.size()), b(false, bs.size()), together(false, cs.size()), alone(false, cs.size());
    a.set(as);
    b.set(bs);
    together.set(cs);
    alone.set(cs);
    cublasHandle_t handle{};
    cudaStream_t stream{};
    ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_OK(cublasCreate(&handle));
    ASSERT_OK(cublasSetStream(handle, stream));
    const float two = 2, one = 1;
    ASSERT_OK(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &two, a.memory, CUDA_R_32F, m,
                                         size_a, b.memory, CUDA_R_32F, k, 0, &one, together.memory, CUDA_R_32F, m,
                                         size_c, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    for (int i = 0; i < batch; ++i)
        ASSERT_OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &two,
                               static_cast<const float*>(a.memory) + i * size_a, CUDA_R_32F, m, b.memory, CUDA_R_32F, k,
                               &one, static_cast<float*>(alone.memory) + i * size_c, CUDA_R_32F, m, CUBLAS_COMPUTE_32F,
                               CUBLAS_GEMM_DEFAULT));
    ASSERT_OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(together.get(), alone.get());
    EXPECT_NE(together.get(), cs);
    EXPECT_OK(cublasDestroy(handle));
    EXPECT_OK(cudaStreamDestroy(stream));
}

}  // namespace
