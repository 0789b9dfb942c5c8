// cuDNN and cuBLAS in the stand-in of CUDA: convolutions and matrix products against direct formulas.
#include "exec/cuda/layers/convolution_plans.h"
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
    bool half;
    int stride, pad, filter;
};

class HostCudnn : public testing::TestWithParam<ConvCase> {
protected:
    void SetUp() override {
        const ConvCase& p = GetParam();
        const auto out = [&](int in) { return (in + 2 * p.pad - p.filter) / p.stride + 1; };
        y_shape = {x_shape.n, 5, out(x_shape.h), out(x_shape.w)};
        w_shape = {5, x_shape.c, p.filter, p.filter};
        ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        ASSERT_OK(cudnnCreate(&handle));
        ASSERT_OK(cudnnSetStream(handle, stream));
    }
    void TearDown() override {
        EXPECT_OK(cudnnDestroy(handle));
        EXPECT_OK(cudaStreamDestroy(stream));
    }

    pw::cuda::ConvolutionProposals proposals_of(pw::ConvolutionPass pass) const {
        const ConvCase& p = GetParam();
        return {handle,
                {.pass = pass,
                 .samples = x_shape.n,
                 .channels = x_shape.c,
                 .height = x_shape.h,
                 .width = x_shape.w,
                 .outputs = y_shape.c,
                 .kernel = p.filter,
                 .stride = p.stride,
                 .padding = p.pad,
                 .multiprocessors = 64},
                p.half ? pw::Precision::Bf16 : pw::Precision::Tf32};
    }

    static std::size_t at(const Shape4& s, int n, int c, int h, int w) {
        return static_cast<std::size_t>(((n * s.h + h) * s.w + w) * s.c + c);
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
                                    if (r < 0 || r >= p.filter || s < 0 || s >= p.filter)
                                        continue;
                                    const auto xi = at(x_shape, n, c, h, v), yi = at(y_shape, n, k, i, j);
                                    const auto wi = at(w_shape, k, c, r, s);
                                    const auto to = !xs ? xi : !ws ? wi : yi;
                                    sum[to] += (xs ? (*xs)[xi] : 1) * (ws ? (*ws)[wi] : 1) * (ys ? (*ys)[yi] : 1);
                                }
    }

    const Shape4 x_shape{2, 3, 7, 6};
    Shape4 y_shape{}, w_shape{};
    cudaStream_t stream{};
    cudnnHandle_t handle{};
};

TEST_P(HostCudnn, ConvolvesByTheFormula) {
    const bool half = GetParam().half;
    const std::array values = {digits(x_shape.count(), 1), digits(w_shape.count(), 2), digits(y_shape.count(), 3)};
    for (const auto& [name, pass] : pw::kChoices<pw::ConvolutionPass>) {
        const std::size_t made = pass == pw::ConvolutionPass::Forward         ? 2
                                 : pass == pw::ConvolutionPass::BackwardInput ? 0
                                                                              : 1;
        std::vector<double> expected(values[made].size());
        const auto read = [&](std::size_t k) { return k == made ? nullptr : &values[k]; };
        add_products(read(0), read(1), read(2), expected);
        const pw::cuda::ConvolutionProposals proposals = proposals_of(pass);
        ASSERT_EQ(proposals.count(), 4);
        for (const int engine : {0, 1, 3}) {
            const auto plan = proposals.plan(engine, false, 1 << 20);
            ASSERT_TRUE(plan);
            Values x(half, x_shape.count()), w(half, w_shape.count()), y(half, y_shape.count());
            Values workspace(false, static_cast<std::size_t>(plan->workspace()) / 4 + 1);
            Values* const tensors[] = {&x, &w, &y};
            for (std::size_t k = 0; k < 3; ++k)
                if (k != made)
                    tensors[k]->set(values[k]);
            ASSERT_OK(plan->run(handle, {x.memory, w.memory, y.memory}, workspace.memory));
            ASSERT_OK(cudaStreamSynchronize(stream));
            EXPECT_EQ(tensors[made]->get(), expected) << name << ", engine " << engine;
        }
    }
}

TEST_P(HostCudnn, OffersPlansWithinLimits) {
    const pw::cuda::ConvolutionProposals forward = proposals_of(pw::ConvolutionPass::Forward);
    const pw::cuda::ConvolutionProposals backward = proposals_of(pw::ConvolutionPass::BackwardWeight);
    EXPECT_TRUE(forward.plan(0, true, 0));
    EXPECT_FALSE(backward.plan(0, true, 0)) << "it is not deterministic";
    EXPECT_TRUE(backward.plan(0, false, 0));
    EXPECT_FALSE(backward.plan(1, true, 1023)) << "it needs a workspace";
    EXPECT_TRUE(backward.plan(1, true, 1 << 20));
    EXPECT_FALSE(backward.plan(2, false, 1 << 20)) << "it is not built";
    for (const int none : {-1, 4})
        EXPECT_FALSE(forward.plan(none, false, 1 << 20));
}

TEST_P(HostCudnn, RefusesShapesThatDoNotFit) {
    cudnnBackendDescriptor_t tensor = nullptr;
    ASSERT_OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor));
    const std::array<std::int64_t, 4> dims = {2, 3, 4, 5}, planes = {60, 20, 5, 1};
    ASSERT_OK(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data()));
    ASSERT_OK(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, planes.data()));
    EXPECT_EQ(cudnnBackendFinalize(tensor), CUDNN_STATUS_BAD_PARAM);  // not NHWC
    EXPECT_OK(cudnnBackendDestroyDescriptor(tensor));
}

INSTANTIATE_TEST_SUITE_P(Shapes, HostCudnn,
                         testing::Values(ConvCase{false, 1, 1, 3}, ConvCase{false, 2, 3, 5}, ConvCase{false, 2, 1, 3},
                                         ConvCase{false, 2, 0, 1}, ConvCase{true, 1, 1, 3}, ConvCase{true, 2, 3, 5},
                                         ConvCase{true, 2, 0, 1}));

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
