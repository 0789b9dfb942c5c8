// The work of CudaKernels outside layers.
#include "exec/cuda/cuda_kernels.h"

#include "exec/cuda/backend.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/layers/layers.h"
#include "exec/training/batch_statistics.h"
#include "job/config/config.h"
#include "tests/support/adamw.h"
#include "tests/support/layer_rig.h"
#include "tests/support/refusal.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace pw::cuda {
namespace {

constexpr int kLots = 1'000'003;  // values: more than the share of a partial sum

Bytes to_bytes(std::size_t values) { return static_cast<Bytes>(values * sizeof(float)); }

float rounded_to_bf16(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

struct Variant {
    std::string name;
    Precision precision;
    bool shares;  // whether devices have shares of a GPU
};

void PrintTo(const Variant& tested, std::ostream* out) { *out << tested.name; }

class CudaKernelsTest : public testing::TestWithParam<Variant> {
protected:
    void SetUp() override {
        if (cuda_status() != "ready")
            GTEST_SKIP() << cuda_status();
        Seat seat;
        if (GetParam().shares)
            seat.groups = 2;
        kernels_ = std::make_unique<CudaKernels>(seat, GetParam().precision, true);
    }

    const CudaKernels& kernels() const { return *kernels_; }
    bool is_bf16() const { return GetParam().precision == Precision::Bf16; }
    std::unique_ptr<Memory> reserve(Bytes bytes) const { return kernels().reserve(bytes, "test"); }

    // A block of weights, gradients or momentum; its bf16 part is all ones: NaN.
    std::unique_ptr<Memory> block(const std::vector<float>& values) const {
        auto made = reserve(block_bytes(std::ssize(values), GetParam().precision));
        kernels().fill(made->data(), 0xff, made->size());
        put(values, *made);
        return made;
    }
    // Zeros follow the values.
    void put(const std::vector<float>& values, const Memory& block) const {
        std::vector<float> padded = values;
        padded.resize(static_cast<std::size_t>(block_values(block.size(), GetParam().precision)));
        upload(padded.data(), block.data(), to_bytes(padded.size()));
    }
    void upload(const void* from, std::byte* to, Bytes bytes) const {
        check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                              kernels().device().stream()),
              "cudaMemcpyAsync");
        kernels().finish();
    }
    template <class Value>
    std::vector<Value> values(const void* from, std::size_t count) const {
        std::vector<Value> all(count);
        check(cudaMemcpyAsync(all.data(), from, count * sizeof(Value), cudaMemcpyDeviceToHost,
                              kernels().device().stream()),
              "cudaMemcpyAsync");
        kernels().finish();
        return all;
    }

    // A tensor of the backend's element type.
    std::unique_ptr<Memory> tensor(const std::vector<float>& from) const {
        auto made = reserve(tensor_bytes(std::ssize(from), GetParam().precision));
        std::vector<Bf16> halves;
        for (const float value : from)
            halves.push_back(__float2bfloat16_rn(value));
        if (is_bf16())
            upload(halves.data(), made->data(), static_cast<Bytes>(halves.size() * sizeof(Bf16)));
        else
            upload(from.data(), made->data(), to_bytes(from.size()));
        return made;
    }
    std::vector<float> elements(const std::byte* tensor, std::size_t count) const {
        if (!is_bf16())
            return values<float>(tensor, count);
        std::vector<float> all;
        for (const Bf16 half : values<Bf16>(tensor, count))
            all.push_back(__bfloat162float(half));
        return all;
    }

    std::unique_ptr<CudaKernels> kernels_;
};

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, float tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
}

TEST_P(CudaKernelsTest, UpdatesAsTheReference) {
    constexpr Sgd kSgd{0.1, 0.9, 0.01};
    constexpr int kCount = 1000;
    const auto weights = random_values(kCount, 1), gradient = random_values(kCount, 2);
    std::vector<float> momentum = random_values(kCount, 3), expected(kCount);
    const auto bytes_of = [](auto& all) { return reinterpret_cast<std::byte*>(all.data()); };
    const auto own_weights = block(weights), own_gradient = block(gradient), own_momentum = block(momentum);
    const auto other = block({std::vector<float>(kCount)});
    reference_kernels().update(kSgd, reinterpret_cast<const std::byte*>(weights.data()),
                               reinterpret_cast<const std::byte*>(gradient.data()), {bytes_of(momentum)},
                               bytes_of(expected), to_bytes(kCount));
    const auto expect_updated = [&](const Memory& updated) {
        const auto made = values<float>(updated.data(), kCount);
        expect_near(made, expected, 1e-6f);
        expect_near(values<float>(own_momentum->data(), kCount), momentum, 1e-6f);
        if (!is_bf16())
            return;
        const auto shadows =
            values<Bf16>(shadow(updated.data(), block_values(updated.size(), Precision::Bf16)), kCount);
        for (std::size_t i = 0; i < made.size(); ++i)
            ASSERT_EQ(__bfloat162float(shadows[i]), rounded_to_bf16(made[i])) << i;
    };

    kernels().update(kSgd, own_weights->data(), own_gradient->data(), {own_momentum->data()}, other->data(),
                     other->size());
    expect_updated(*other);
    EXPECT_EQ(values<float>(own_weights->data(), kCount), weights);

    put(random_values(kCount, 3), *own_momentum);
    kernels().update(kSgd, own_weights->data(), own_gradient->data(), {own_momentum->data()}, own_weights->data(),
                     own_weights->size());
    expect_updated(*own_weights);
}

// A layer of less than a share, and one of several.
TEST_P(CudaKernelsTest, UpdateByAdamWAsThePaper) {
    for (const int count : {7, 20'000})
        EXPECT_LT(difference_from_paper(kernels(), count, block_bytes(count, GetParam().precision)), 1e-6) << count;
}

TEST_P(CudaKernelsTest, PredictsAsTheReference) {
    constexpr int kCount = 1000;
    const auto weights = random_values(kCount, 1), momentum = random_values(kCount, 2);
    std::vector<float> expected(kCount);
    reference_kernels().predict(reinterpret_cast<const std::byte*>(weights.data()),
                                reinterpret_cast<const std::byte*>(momentum.data()), 0.3,
                                reinterpret_cast<std::byte*>(expected.data()), to_bytes(kCount));
    const auto own_weights = block(weights), own_momentum = block(momentum);
    const auto predicted = block({std::vector<float>(kCount)});
    kernels().predict(own_weights->data(), own_momentum->data(), 0.3, predicted->data(), predicted->size());
    const auto made = values<float>(predicted->data(), kCount);
    expect_near(made, expected, 1e-6f);
    EXPECT_EQ(values<float>(own_weights->data(), kCount), weights);
    EXPECT_EQ(values<float>(own_momentum->data(), kCount), momentum);
    if (!is_bf16())
        return;
    const auto shadows =
        values<Bf16>(shadow(predicted->data(), block_values(predicted->size(), Precision::Bf16)), kCount);
    for (std::size_t i = 0; i < made.size(); ++i)
        ASSERT_EQ(__bfloat162float(shadows[i]), rounded_to_bf16(made[i])) << i;
}

TEST_P(CudaKernelsTest, SumsSquaresInOneOrder) {
    const auto sums = kernels().shared(2 * sizeof(double));
    auto* sum = reinterpret_cast<double*>(sums->data());
    for (const int count : {1, 31, 32, 33, 4096, 5000, 70'000, kLots}) {
        const auto plain = random_values(count, static_cast<unsigned>(count));
        const auto gradient = block(plain);
        sum[0] = sum[1] = std::numeric_limits<double>::quiet_NaN();
        kernels().sum_of_squares(gradient->data(), gradient->size(), sum);
        kernels().sum_of_squares(gradient->data(), gradient->size(), sum + 1);
        kernels().finish();
        const double expected = std::accumulate(plain.begin(), plain.end(), 0.0, [](double total, float value) {
            return total + double{value} * double{value};
        });
        EXPECT_NEAR(sum[0], expected, 1e-12 * expected) << count;
        EXPECT_EQ(sum[0], sum[1]) << count;
    }
}

// Layers of less than a share, of several shares, and of a little more than one; one layer between them has no
// parameters.
TEST_P(CudaKernelsTest, UpdatesAStageAsItsLayers) {
    constexpr Sgd kSgd{0.1, 0.9, 0.01};
    constexpr double kNever = -1;
    std::vector<StageBlock> layers;
    Bytes end = 0;
    for (const int count : {7, 0, 70'000, 8200}) {
        const Bytes bytes = block_bytes(count, GetParam().precision);
        layers.push_back({.layer = static_cast<int>(layers.size()), .weights_at = end, .weights = bytes});
        end += bytes;
    }
    layers[3].is_measured = false;
    const auto made = [&](unsigned seed) {
        auto block = reserve(end);
        const auto all = random_values(end / Bytes{sizeof(float)}, seed);
        upload(all.data(), block->data(), end);
        return block;
    };
    const auto weights = made(1), gradients = made(2), momentum = made(3), own_momentum = made(3);
    const auto together = reserve(end), alone = reserve(end), predicted = reserve(end), alone_predicted = reserve(end);
    const auto averages = reserve(2 * end), own_averages = reserve(2 * end), adapted = reserve(end),
               alone_adapted = reserve(end);
    const auto notes = kernels().shared(3 * 4 * sizeof(double));
    auto* squares = reinterpret_cast<double*>(notes->data());
    std::fill_n(squares, 12, kNever);
    const auto stage = kernels().make_stage(layers);
    stage->update(kSgd, weights->data(), gradients->data(), {momentum->data()}, together->data(), squares);
    stage->measure(gradients->data(), squares + 4);
    stage->predict(together->data(), momentum->data(), 0.3, predicted->data());
    stage->update(kAdamW, weights->data(), gradients->data(), {averages->data(), end}, adapted->data(), nullptr);
    for (const StageBlock& layer : layers) {
        const auto at = [&](const std::unique_ptr<Memory>& block) { return block->data() + layer.weights_at; };
        if (layer.weights == 0)
            continue;
        kernels().sum_of_squares(at(gradients), layer.weights, squares + 8 + layer.layer);
        kernels().update(kSgd, at(weights), at(gradients), {at(own_momentum)}, at(alone), layer.weights);
        kernels().predict(at(alone), at(own_momentum), 0.3, at(alone_predicted), layer.weights);
        kernels().update(kAdamW, at(weights), at(gradients), {at(own_averages), end}, at(alone_adapted), layer.weights);
    }
    kernels().finish();
    const auto bytes = [&](const std::unique_ptr<Memory>& block) {
        return values<unsigned char>(block->data(), static_cast<std::size_t>(end));
    };
    EXPECT_EQ(bytes(together), bytes(alone));
    EXPECT_EQ(bytes(momentum), bytes(own_momentum));
    EXPECT_EQ(bytes(predicted), bytes(alone_predicted));
    EXPECT_EQ(bytes(adapted), bytes(alone_adapted));
    EXPECT_NE(bytes(adapted), bytes(together));
    for (const int layer : {0, 2}) {
        EXPECT_EQ(squares[layer], squares[8 + layer]);
        EXPECT_EQ(squares[4 + layer], squares[8 + layer]);
    }
    for (const int unmeasured : {1, 3, 5, 7})
        EXPECT_EQ(squares[unmeasured], kNever) << unmeasured;
}

TEST_P(CudaKernelsTest, AveragesAStageAsItsLayers) {
    const Layer narrow = make_layer(LayerKind::BatchNorm, {5, 3, 4}, 5);
    const Layer wide = make_layer(LayerKind::BatchNorm, {300, 2, 1}, 300);
    const auto first = kernels().make(narrow, 2, false), second = kernels().make(wide, 2, false);
    const Bytes at = first->bytes().statistics, end = at + second->bytes().statistics;
    const auto stage = kernels().make_stage(
        {{.layer = 0, .statistics_at = 0, .statistics = at, .channels = 5, .per_sample = 12},
         {.layer = 1, .statistics_at = at, .statistics = end - at, .channels = 300, .per_sample = 2}});
    const auto made = [&](unsigned seed) {
        auto block = reserve(end);
        const auto all = random_values(end / Bytes{sizeof(float)}, seed);
        upload(all.data(), block->data(), end);
        return block;
    };
    const auto one = made(1), other = made(2), together = made(3), alone = made(3);
    const StatisticsTable table(kernels(), {one->data(), other->data()}, {2, 2});
    for (const bool deferred : {false, true}) {
        BatchStatistics of = table.of(0, 1, deferred);
        stage->gather_statistics(of, together->data());
        first->gather_statistics(of, alone->data());
        of.offset = at;
        second->gather_statistics(of, alone->data() + at);
        const auto count = static_cast<std::size_t>(end) / sizeof(float);
        EXPECT_EQ(values<float>(together->data(), count), values<float>(alone->data(), count)) << deferred;
    }
}

TEST_P(CudaKernelsTest, AddsTensors) {
    for (const int count : {32, 1056, 100'000}) {
        const auto from = random_values(count, 1), to = random_values(count, 2);
        const auto own_from = tensor(from), own_to = tensor(to);
        kernels().add(own_from->data(), own_to->data(), own_to->size());
        std::vector<float> expected;
        for (std::size_t i = 0; i < from.size(); ++i)
            expected.push_back(is_bf16() ? rounded_to_bf16(rounded_to_bf16(from[i]) + rounded_to_bf16(to[i]))
                                         : from[i] + to[i]);
        EXPECT_EQ(elements(own_to->data(), expected.size()), expected);
    }
}

TEST_P(CudaKernelsTest, CopiesAndFills) {
    const auto from = reserve(4096), to = reserve(4096);
    kernels().fill(from->data(), 0x5a, 4096);
    kernels().copy(from->data(), to->data() + 64, 1024);
    kernels().copy(from->data(), to->data(), 0);
    std::vector<unsigned char> expected(4096, 0);  // reserved memory is zeroed
    std::fill_n(expected.begin() + 64, 1024, 0x5a);
    EXPECT_EQ(values<unsigned char>(to->data(), 4096), expected);
}

TEST_P(CudaKernelsTest, LoadsDataAsTheDataSetReadsIt) {
    for (const Dims input : {Dims{3, 32, 32}, Dims{3, 45, 37}, Dims{3, 20, 64}, Dims{1, 28, 28}}) {
        Dataset data = Dataset::synthetic(input, 10, 5);
        float shift = 0;  // the largest number that is added to a scaled pixel
        if (input.height == 45) {
            data.change({.crop_padding = 9, .flip = true, .mean = {0.5, 0.4, 0.3}, .deviation = {0.1, 0.2, 0.3}});
            shift = 0.5F / 0.1F;
        }
        const auto notes = kernels().shared(3 * sizeof(Sample));
        auto* samples = reinterpret_cast<Sample*>(notes->data());
        samples[0] = {.place = 7, .row = -3, .column = 5, .flip = true};
        samples[1] = {.place = data.samples() - 1};
        samples[2] = {.place = 0, .row = 9, .column = -9};
        const auto out = reserve(kernels().data_bytes(input, 3));
        kernels().take_data(data);
        kernels().load_data(data, {samples, 3}, out->data());

        const auto count = static_cast<std::size_t>(input.elements());
        const auto made = elements(out->data(), 3 * count);
        // There is a fourth channel of zeros if a convolution reads the data.
        const CudaKernels padding({}, GetParam().precision, true);
        (void)padding.make(make_layer(LayerKind::Convolution, input, 8), 3, true);
        padding.take_data(data);
        padding.load_data(data, {samples, 3}, out->data());
        padding.finish();
        const auto stored = static_cast<std::size_t>(padded_channels(input.channels));
        const auto own = static_cast<std::size_t>(input.channels);
        const auto padded = elements(out->data(), 3 * count / own * stored);
        for (std::size_t pixel = 0; pixel < 3 * count / own; ++pixel)
            for (std::size_t c = 0; c < stored; ++c)
                ASSERT_EQ(padded[pixel * stored + c], c < own ? made[pixel * own + c] : 0) << pixel << " " << c;
        std::vector<float> image(count);
        for (std::size_t n = 0; n < 3; ++n) {
            data.read_at(samples[n], image);
            std::size_t plain = 0;
            for (int c = 0; c < input.channels; ++c)
                for (int pixel = 0; pixel < input.height * input.width; ++pixel, ++plain)
                    ASSERT_NEAR(made[n * count + static_cast<std::size_t>(pixel * input.channels + c)], image[plain],
                                (is_bf16() ? 0x1p-8 : 1e-6) * std::max(1.0f, std::abs(image[plain]) + shift))
                        << "sample " << n << " channel " << c << " pixel " << pixel;
        }
    }
}

TEST_P(CudaKernelsTest, ReportsTheDeviceAndTheMissingMemory) {
    const Bytes wanted = 2 * memory_of(0).total;
    try {
        (void)kernels().reserve(wanted, "device 1 (stage 1)");
        FAIL() << "nothing was thrown";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::RunFailed);
        const std::string start = fmt::format("device 1 (stage 1): cannot reserve {} on GPU 0: ", print_bytes(wanted));
        EXPECT_EQ(std::string(error.what()).substr(0, start.size()), start);
        expect_says(error.what(), {" of " + print_bytes(memory_of(0).total) + " are free"});
    }
    const auto fits = reserve(100);  // the failure has no lasting effect
    EXPECT_GE(fits->size(), 100);
    EXPECT_EQ(values<unsigned char>(fits->data(), 100), std::vector<unsigned char>(100, 0));
}

TEST_P(CudaKernelsTest, MarksMeasureTheTimeBetween) {
    const auto from = reserve(1 << 20), to = reserve(1 << 20);
    for (int round = 0; round < 2; ++round) {
        const Mark start = kernels().mark();
        EXPECT_EQ(start, 0);  // finish() has discarded the earlier marks
        kernels().copy(from->data(), to->data(), from->size());
        const Mark middle = kernels().mark();
        kernels().copy(from->data(), to->data(), from->size());
        const Mark end = kernels().mark();
        const Ns first = kernels().time_between(start, middle), second = kernels().time_between(middle, end);
        EXPECT_GE(first, 0);
        EXPECT_GE(second, 0);
        EXPECT_NEAR(static_cast<double>(kernels().time_between(start, end)), static_cast<double>(first + second), 2000);
        kernels().finish();
    }
}

TEST_P(CudaKernelsTest, DevicesHaveTheirShare) {
    const std::string name = kernels().device().name();
    EXPECT_EQ(contains(name, "GPU 0, 16 of "), GetParam().shares) << name;
    EXPECT_EQ(kernels().device().multiprocessors() == 16, GetParam().shares) << name;
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaKernelsTest,
                         testing::Values(Variant{"Fp32", Precision::Fp32, false},
                                         Variant{"Fp32Share", Precision::Fp32, true},
                                         Variant{"Tf32", Precision::Tf32, false},
                                         Variant{"Bf16", Precision::Bf16, false},
                                         Variant{"Bf16Share", Precision::Bf16, true}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace pw::cuda
