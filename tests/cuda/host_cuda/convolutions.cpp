// Convolutions by plain loops in double, one number of the result after the other.
#include "tests/cuda/host_cuda/convolutions.h"

#include "tests/cuda/host_cuda/products.h"

#include <cuda_bf16.h>

#include <mutex>
#include <utility>
#include <vector>

namespace host_cuda {

namespace {

bool fits(const Convolution& c) {
    const auto out = [](int in, int pad, int filter, int stride, int dilation) {
        return (in + 2 * pad - (filter - 1) * dilation - 1) / stride + 1;
    };
    return c.x.n == c.y.n && c.x.c == c.w.c && c.w.n == c.y.c &&
           c.y.h == out(c.x.h, c.how.pad_h, c.w.h, c.how.stride_h, c.how.dilation_h) &&
           c.y.w == out(c.x.w, c.how.pad_w, c.w.w, c.how.stride_w, c.how.dilation_w);
}

struct Convolutions {
    std::mutex mutex;
    ConvolutionLimits limits;
    std::vector<RanConvolution> ran;
    int timings = 0;
};

Convolutions& convolutions() {
    static Convolutions all;
    return all;
}

bool is_narrow(const Convolution& c) { return c.x.type == CUDNN_DATA_BFLOAT16 && (c.x.c % 8 != 0 || c.y.c % 8 != 0); }

bool is_within_limits(const Convolution& c) {
    Convolutions& all = convolutions();
    const std::lock_guard lock(all.mutex);
    const bool is_tensor_op = c.how.math == CUDNN_TENSOR_OP_MATH, is_default = c.how.math == CUDNN_DEFAULT_MATH;
    const bool refused = (all.limits.narrow_tensor_ops && is_tensor_op) || (all.limits.narrow_default && is_default);
    return !refused || !is_narrow(c);
}

bool has_algorithm(const Convolution& c) {
    if (c.x.type == CUDNN_DATA_FLOAT)
        return c.algorithm == 0 || c.algorithm == 1;
    Convolutions& all = convolutions();
    const std::lock_guard lock(all.mutex);
    const bool is_odd = all.limits.narrow_algorithms && is_narrow(c);
    return c.x.format == CUDNN_TENSOR_NHWC && (is_odd ? c.algorithm == 0 || c.algorithm == 5 : c.algorithm == 1);
}

// Calls act(offset in memory, offset in NHWC) for every element.
template <class Act>
void for_each_element(const cudnnTensorStruct& t, Act act) {
    std::size_t plain = 0;
    for (int n = 0; n < t.n; ++n)
        for (int h = 0; h < t.h; ++h)
            for (int w = 0; w < t.w; ++w)
                for (int c = 0; c < t.c; ++c, ++plain)
                    act(t.format == CUDNN_TENSOR_NHWC ? plain : ((std::size_t(n) * t.c + c) * t.h + h) * t.w + w,
                        plain);
}

std::vector<double> load(const cudnnTensorStruct& t, const void* memory) {
    std::vector<double> values(t.count());
    for_each_element(t, [&](std::size_t at, std::size_t plain) {
        values[plain] = t.type == CUDNN_DATA_FLOAT ? static_cast<const float*>(memory)[at]
                                                   : __bfloat162float(static_cast<const __nv_bfloat16*>(memory)[at]);
    });
    return values;
}

void store(const cudnnTensorStruct& t, const std::vector<double>& values, void* memory) {
    for_each_element(t, [&](std::size_t at, std::size_t plain) {
        const auto value = static_cast<float>(values[plain]);
        if (t.type == CUDNN_DATA_FLOAT)
            static_cast<float*>(memory)[at] = value;
        else
            static_cast<__nv_bfloat16*>(memory)[at] = __float2bfloat16_rn(value);
    });
}

// Calls act(x, w, y) for every element y, with the offsets of the first channel of its x and w.
template <class Act>
void for_each_meeting(const Convolution& c, Act act) {
    std::size_t y = 0;
    for (int n = 0; n < c.y.n; ++n)
        for (int p = 0; p < c.y.h; ++p)
            for (int q = 0; q < c.y.w; ++q)
                for (int k = 0; k < c.y.c; ++k, ++y)
                    for (int r = 0; r < c.w.h; ++r)
                        for (int s = 0; s < c.w.w; ++s) {
                            const int h = p * c.how.stride_h - c.how.pad_h + r * c.how.dilation_h;
                            const int w = q * c.how.stride_w - c.how.pad_w + s * c.how.dilation_w;
                            if (h >= 0 && h < c.x.h && w >= 0 && w < c.x.w)
                                act(((std::size_t(n) * c.x.h + h) * c.x.w + w) * c.x.c,
                                    ((std::size_t(k) * c.w.h + r) * c.w.w + s) * c.x.c, y);
                        }
}

std::vector<double> compute(const Convolution& c, const void* first, const void* second) {
    const std::vector<double> a = load(c.pass == Pass::Data ? c.w : c.x, first);
    const std::vector<double> b = load(c.pass == Pass::Forward ? c.w : c.y, second);
    const std::size_t channels = c.x.c;
    std::vector<double> out(output_of(c).count());
    for_each_meeting(c, [=, pass = c.pass, a = a.data(), b = b.data(), out = out.data()](auto x, auto w, auto y) {
        if (pass == Pass::Forward)
            out[y] += dot(a + x, b + w, channels);
        else if (pass == Pass::Data)
            add_multiple(out + x, b[y], a + w, channels);
        else
            add_multiple(out + w, b[y], a + x, channels);
    });
    return out;
}

}  // namespace

// Every pass has algorithm 1, which is deterministic; for floats there is algorithm 0, which does not count as
// deterministic.
cudnnStatus_t check(const Convolution& c) {
    if (!fits(c))
        return CUDNN_STATUS_BAD_PARAM;
    const bool same = c.x.type == c.w.type && c.x.type == c.y.type && c.x.format == c.w.format &&
                      c.x.format == c.y.format && c.how.mode == CUDNN_CROSS_CORRELATION &&
                      c.how.compute == CUDNN_DATA_FLOAT;
    return same && has_algorithm(c) && is_within_limits(c) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

std::size_t workspace_of(const Convolution& c) { return c.algorithm == 1 ? 1024 + 256 * std::size_t(c.w.n) : 0; }

bool is_timed(const Convolution& c) {
    Convolutions& all = convolutions();
    const std::lock_guard lock(all.mutex);
    ++all.timings;
    return !(all.limits.find_narrow && is_narrow(c));
}

bool is_launched(const Convolution& c, bool on_share) {
    const std::lock_guard lock(convolutions().mutex);
    return !(convolutions().limits.tensor_ops_on_shares && on_share && c.how.math == CUDNN_TENSOR_OP_MATH);
}

void note(const Convolution& c) {
    const std::lock_guard lock(convolutions().mutex);
    convolutions().ran.push_back({static_cast<int>(c.pass), c.algorithm, c.how.math});
}

void convolve(const Convolution& c, float a, const void* first, const void* second, float b, void* output) {
    std::vector<double> values = compute(c, first, second);
    const cudnnTensorStruct& to = output_of(c);
    const std::vector<double> old = b == 0 ? std::vector<double>(values.size()) : load(to, output);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = a * values[i] + b * old[i];
    store(to, values, output);
}

void set_convolution_limits(const ConvolutionLimits& limits) {
    const std::lock_guard lock(convolutions().mutex);
    convolutions().limits = limits;
}

std::vector<RanConvolution> take_convolutions() {
    const std::lock_guard lock(convolutions().mutex);
    return std::exchange(convolutions().ran, {});
}

int take_timings() {
    const std::lock_guard lock(convolutions().mutex);
    return std::exchange(convolutions().timings, 0);
}

}  // namespace host_cuda
