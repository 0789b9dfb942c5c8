// Convolutions by plain loops in double, one number of the result after the other.
#include "tests/cuda/host_cuda/convolutions.h"

#include "tests/cuda/host_cuda/products.h"

#include <cuda_bf16.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace host_cuda {

namespace {

struct Convolutions {
    std::mutex mutex;
    ConvolutionLimits limits;
    std::vector<RanConvolution> ran;
};

Convolutions& convolutions() {
    static Convolutions all;
    return all;
}

bool is_narrow(const Convolution& c) { return c.x.type == CUDNN_DATA_BFLOAT16 && (c.x.c % 8 != 0 || c.y.c % 8 != 0); }

bool is_among(std::set<ConvolutionEngine> ConvolutionLimits::*limits, ConvolutionEngine engine) {
    Convolutions& all = convolutions();
    const std::lock_guard lock(all.mutex);
    return (all.limits.*limits).contains(engine);
}

std::vector<double> load(const Tensor& t, const void* memory) {
    std::vector<double> values(t.count());
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = t.type == CUDNN_DATA_FLOAT ? static_cast<const float*>(memory)[i]
                                               : __bfloat162float(static_cast<const __nv_bfloat16*>(memory)[i]);
    return values;
}

void store(const Tensor& t, const std::vector<double>& values, void* memory) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<float>(values[i]);
        if (t.type == CUDNN_DATA_FLOAT)
            static_cast<float*>(memory)[i] = value;
        else
            static_cast<__nv_bfloat16*>(memory)[i] = __float2bfloat16_rn(value);
    }
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
                            const int h = p * c.stride - c.pad + r;
                            const int w = q * c.stride - c.pad + s;
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

bool fits(const Convolution& c) {
    const auto out = [&](int in, int filter) { return (in + 2 * c.pad - filter) / c.stride + 1; };
    return c.x.n == c.y.n && c.x.c == c.w.c && c.w.n == c.y.c && c.y.h == out(c.x.h, c.w.h) &&
           c.y.w == out(c.x.w, c.w.w) && c.x.type == c.w.type && c.x.type == c.y.type;
}

bool is_built(const Convolution& c, ConvolutionEngine engine) {
    return engine != ConvolutionEngine::Unfit && !(is_narrow(c) && is_among(&ConvolutionLimits::not_narrow, engine));
}

bool is_launched(ConvolutionEngine engine, bool on_share) {
    return !(on_share && is_among(&ConvolutionLimits::not_on_shares, engine));
}

std::size_t workspace_of(const Convolution& c, ConvolutionEngine engine) {
    return engine == ConvolutionEngine::Ordinary ? 1024 + 256 * std::size_t(c.w.n) : 0;
}

void note(const Convolution& c, ConvolutionEngine engine) {
    const std::lock_guard lock(convolutions().mutex);
    convolutions().ran.push_back({static_cast<int>(c.pass), engine});
}

void convolve(const Convolution& c, ConvolutionEngine engine, const void* first, const void* second, void* output) {
    if (is_among(&ConvolutionLimits::slow, engine))
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
    store(output_of(c), compute(c, first, second), output);
}

void set_convolution_limits(const ConvolutionLimits& limits) {
    const std::lock_guard lock(convolutions().mutex);
    convolutions().limits = limits;
}

std::vector<RanConvolution> take_convolutions() {
    const std::lock_guard lock(convolutions().mutex);
    return std::exchange(convolutions().ran, {});
}

}  // namespace host_cuda
