#include "exec/measuring/products.h"

#include "exec/backends.h"
#include "exec/engine/machine.h"
#include "exec/engine/pin.h"
#include "exec/measuring/own_thread.h"
#include "exec/measuring/profile.h"
#include "exec/measuring/stop_watch.h"
#include "exec/runnable.h"
#include "exec/system/disturbance.h"
#include "workloads/clock.h"
#include "workloads/machine_memory.h"
#include "workloads/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace pw {

namespace {

// A profile has four turns of as many calls. The first round here is short: it shows how many calls the later rounds
// can have.
constexpr int kRounds = 4, kLeastInRound = 2, kMostInRound = 10;
constexpr std::int64_t kLeastRows = 64;
constexpr std::int64_t kLadder[] = {256, 1024, 4096};
constexpr std::int64_t kTimesOnGpus = 4;
constexpr ProductLayout kPasses[] = {ProductLayout::TN, ProductLayout::NN, ProductLayout::NT};

struct WantedLayer {
    LinearShape shape;
    std::vector<ProductLayout> passes;

    double flops() const { return static_cast<double>(passes.size()) * shape.product(ProductLayout::TN).flops(); }
};

// Returns the layers of the products, the fastest first.
std::vector<WantedLayer> layers_with(const std::vector<Product>& products) {
    std::map<LinearShape, std::set<ProductLayout>> passes;
    for (const Product& product : products)
        passes[linear_of(product)].insert(product.layout);
    std::vector<WantedLayer> layers;
    for (const auto& [shape, of_shape] : passes)
        layers.push_back({shape, {of_shape.begin(), of_shape.end()}});
    std::stable_sort(layers.begin(), layers.end(),
                     [](const WantedLayer& a, const WantedLayer& b) { return a.flops() < b.flops(); });
    return layers;
}

std::vector<Product> ladder(std::int64_t times) {
    std::vector<Product> products;
    for (const std::int64_t rows : kLadder)
        for (const std::int64_t inputs : kLadder)
            for (const std::int64_t outputs : kLadder)
                for (const ProductLayout pass : kPasses)
                    products.push_back(LinearShape{times * rows, times * inputs, times * outputs}.product(pass));
    return products;
}

// Returns numbers between -1 and 1, which repeat: zeros would let a GPU run at a higher clock.
std::vector<float> operand(std::int64_t count) {
    constexpr std::size_t kDifferent = 1 << 16;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < values.size(); ++k)
        values[k] = k < kDifferent ? static_cast<float>(mixed(k) >> 40) * 0x1p-23f - 1 : values[k - kDifferent];
    return values;
}

// A linear layer with its operands.
class LinearBench {
public:
    // Throws Error (RunFailed) if there is not enough memory.
    LinearBench(const Kernels& kernels, const LinearShape& shape, std::vector<ProductLayout> passes)
        : kernels_(kernels), passes_(std::move(passes)), times_(passes_.size()) {
        const auto rows = static_cast<int>(shape.rows), inputs = static_cast<int>(shape.inputs),
                   outputs = static_cast<int>(shape.outputs);
        Layer layer{.name = "product",
                    .kind = LayerKind::RowLinear,
                    .input = {1, rows, inputs},
                    .output = {1, rows, outputs},
                    .bias = false};
        kernel_ = kernels.make(layer, 1, false);
        const LayerBytes bytes = kernel_->bytes();
        const Bytes input = aligned(kernels.data_bytes(layer.input, 1));
        const Bytes sizes[] = {input, input, bytes.output, bytes.output, bytes.weights, bytes.weights, bytes.scratch};
        std::byte* parts[std::size(sizes)];
        Bytes all = 0;
        for (const Bytes size : sizes)
            all += aligned(size);
        const auto numbers = std::max({shape.rows * shape.inputs, shape.rows * shape.outputs,
                                       shape.inputs * shape.outputs});  // of an operand, on the host until it is placed
        if (const Bytes most = memory_of_machine() / 4 * 3; kernels.on_host() && all + numbers * kFloatBytes > most)
            fail_with(ExitCode::RunFailed, "it takes {}, and three quarters of this machine's memory are {}",
                      print_bytes(all + numbers * kFloatBytes), print_bytes(most));
        memory_ = kernels.reserve(all, "a product");
        std::byte* free = memory_->data();
        for (std::size_t part = 0; part < std::size(sizes); ++part)
            parts[part] = std::exchange(free, free + aligned(sizes[part]));
        inputs_[0] = parts[0];
        gradients_[0] = parts[1];
        args_.inputs = inputs_;
        args_.input_gradients = gradients_;
        args_.output = parts[2];
        args_.output_gradient = parts[3];
        args_.weights = parts[4];
        args_.weight_gradient = parts[5];
        args_.scratch = parts[6];
        kernel_->fill_input(operand(shape.rows * shape.inputs), parts[0]);
        kernel_->fill_output(operand(shape.rows * shape.outputs), parts[3]);
        kernel_->load({operand(shape.inputs * shape.outputs)}, parts[4], nullptr);
    }
    ~LinearBench() { kernels_.finish(); }  // queued work uses the memory
    LinearBench(const LinearBench&) = delete;
    LinearBench& operator=(const LinearBench&) = delete;

    // Runs the passes in sequence, `calls` times, and returns the time of all.
    Ns run(int calls) {
        const Ns begin = clock_now();
        std::vector<std::pair<Mark, Mark>> marks;
        for (int call = 0; call < calls; ++call)
            for (const ProductLayout pass : passes_) {
                const Mark start = kernels_.mark();
                run_pass(pass);
                marks.emplace_back(start, kernels_.mark());
            }
        for (std::size_t k = 0; k < marks.size(); ++k)
            times_[k % passes_.size()].push_back(
                std::max<Ns>(1, kernels_.time_between(marks[k].first, marks[k].second) - cost_of_marks_));
        kernels_.finish();
        return clock_now() - begin;
    }

    // Discards the times so far.
    void end_warm_up() {
        if (!kernels_.on_host()) {
            run_pass(passes_.front());  // the device is busy as between two passes
            cost_of_marks_ = cost_of_marks(kernels_).median;
        }
        for (std::vector<Ns>& times : times_)
            times.clear();
    }

    Measured time(std::size_t pass) const { return median_of(times_[pass]); }

private:
    void run_pass(ProductLayout pass) {
        switch (pass) {
            case ProductLayout::TN:
                return kernel_->forward(args_, true);
            case ProductLayout::NN:
                return kernel_->backward_input(args_);
            case ProductLayout::NT:
                return kernel_->backward_weight(args_);
        }
    }

    const Kernels& kernels_;
    std::vector<ProductLayout> passes_;
    std::unique_ptr<LayerKernel> kernel_;
    std::unique_ptr<Memory> memory_;
    const std::byte* inputs_[1] = {};
    std::byte* gradients_[1] = {};
    LayerArgs args_;
    Ns cost_of_marks_ = 0;
    std::vector<std::vector<Ns>> times_;  // by pass
};

class ProductMeasurement {
public:
    ProductMeasurement(const Kernels& kernels, Ns time) : kernels_(kernels), end_(clock_now() + time) {}

    // Measures a layer, with fewer rows if all of them take too long or too much memory. `left` layers, including this
    // layer, share the rest of the time.
    void add(const WantedLayer& layer, int left) {
        const Ns end = clock_now() + std::max<Ns>(0, end_ - clock_now()) / left;
        WantedLayer chosen = layer;
        for (std::string why = reason_against(chosen, end); !why.empty(); why = reason_against(chosen, end)) {
            const std::int64_t rows = chosen.shape.rows;
            if (rows / 2 < kLeastRows)
                return remark(layer, fmt::format("left out: with {} rows {}", rows, why));
            chosen.shape.rows = rows / 2;
            std::erase_if(chosen.passes,
                          [&](ProductLayout pass) { return measured_.contains(chosen.shape.product(pass)); });
            if (chosen.passes.empty())
                return remark(layer,
                              fmt::format("left out: with {} rows {}, and {} rows were measured", rows, why, rows / 2));
        }
        if (chosen.shape != layer.shape)
            remark(layer, fmt::format("measured with {} rows", chosen.shape.rows));
        measure(chosen, end);
    }

    MeasuredProducts result() {
        for (MeasuredProduct& row : result_.table.rows)
            row.efficiency /= result_.table.peak;
        if (kernels_.on_host())
            result_.cpu_share = std::round(1000 * core_clock_.share()) / 1000;
        return std::move(result_);
    }

private:
    // Returns why a layer is not measured with these rows, empty if it can be. Reserves its memory.
    std::string reason_against(const WantedLayer& layer, Ns end) {
        bench_.reset();
        try {
            if (fastest_ == 0)
                estimate(layer);
            const double calls = 1 + kRounds * kLeastInRound;
            const double seconds = calls * layer.flops() / fastest_;
            if (const double most = static_cast<double>(std::max<Ns>(0, end - clock_now())) * 1e-9; seconds > most)
                return fmt::format("it takes {:.3g} s, and its share of the time is {:.3g} s", seconds, most);
            bench_ = std::make_unique<LinearBench>(kernels_, layer.shape, layer.passes);
            return {};
        } catch (const Error& error) {
            if (error.code() != ExitCode::RunFailed)
                throw;
            return error.fact();
        }
    }

    // Before anything is measured, the rate is the rate of a few rows.
    void estimate(const WantedLayer& layer) {
        WantedLayer few = layer;
        few.shape.rows = std::min(few.shape.rows, kLeastRows);
        LinearBench bench(kernels_, few.shape, few.passes);
        bench.run(1);
        fastest_ = few.flops() / (static_cast<double>(std::max<Ns>(1, bench.run(1))) * 1e-9);
    }

    void measure(const WantedLayer& layer, Ns end) {
        bench_->run(1);
        bench_->end_warm_up();
        core_clock_.start();
        Ns taken = bench_->run(kLeastInRound);
        const Ns left = std::max<Ns>(0, end - clock_now()) / (kRounds - 1);
        const auto calls = static_cast<int>(
            std::clamp<Ns>(left * kLeastInRound / std::max<Ns>(1, taken), kLeastInRound, kMostInRound));
        for (int round = 1; round < kRounds; ++round)
            bench_->run(calls);
        core_clock_.stop();
        for (std::size_t pass = 0; pass < layer.passes.size(); ++pass) {
            const Product product = layer.shape.product(layer.passes[pass]);
            const Measured time = bench_->time(pass);
            const double rate = product.flops() / (static_cast<double>(time.median) * 1e-9);
            fastest_ = result_.table.peak == 0 ? rate : std::max(fastest_, rate);
            // The fastest product, in whole MFLOP/s, as the text of the table has it.
            result_.table.peak = std::max(result_.table.peak, std::ceil(rate * 1e-6) * 1e6);
            measured_.insert(product);
            result_.table.rows.push_back({product, rate});
            result_.times.push_back(time);
        }
        bench_.reset();
    }

    void remark(const WantedLayer& layer, const std::string& text) {
        result_.remarks.push_back(fmt::format("{} rows, {} inputs, {} outputs: {}", layer.shape.rows,
                                              layer.shape.inputs, layer.shape.outputs, text));
    }

    const Kernels& kernels_;
    const Ns end_;
    double fastest_ = 0;  // FLOP/s
    std::set<Product> measured_;
    std::unique_ptr<LinearBench> bench_;
    CoreClock core_clock_;
    MeasuredProducts result_;
};

MeasuredProducts measure_wanted(Setup setup, const std::vector<Product>& wanted, Ns time,
                                const std::function<void(int, int)>& progress) {
    if (setup.run.gpus.size() > 1)
        setup.run.gpus.erase(setup.run.gpus.begin() + 1, setup.run.gpus.end());
    setup.run.sms.clear();
    pin_this_thread(plan_cores(1, setup.run.threads_per_device, numa_nodes(setup, 1)).cores[0]);
    const std::shared_ptr<const Kernels> kernels = open_kernels(setup, 1)(0);
    const std::vector<WantedLayer> layers =
        layers_with(wanted.empty() ? ladder(kernels->on_host() ? 1 : kTimesOnGpus) : wanted);
    ProductMeasurement measurement(*kernels, time);
    const auto all = static_cast<int>(layers.size());
    for (int layer = 0; layer < all; ++layer) {
        if (progress)
            progress(layer, all);
        measurement.add(layers[static_cast<std::size_t>(layer)], all - layer);
    }
    MeasuredProducts measured = measurement.result();
    if (measured.table.rows.empty())
        fail_with(ExitCode::RunFailed, "no product was measured: {}\n  help: allow more time",
                  measured.remarks.front());
    measured.table.device = kernels->machine();
    measured.table.precision = setup.training.precision;
    measured.table.accumulates = false;
    measured.table.source =
        fmt::format("pipewright profile --gemm, {}, backend {}, {} thread{}; medians of {} to {} calls", today(),
                    kernels->name(), setup.run.threads_per_device, setup.run.threads_per_device == 1 ? "" : "s",
                    kRounds * kLeastInRound, kLeastInRound + (kRounds - 1) * kMostInRound);
    return measured;
}

}  // namespace

MeasuredProducts measure_products(const Setup& setup, const std::vector<Product>& wanted, Ns time,
                                  const std::function<void(int done, int all)>& progress) {
    check_kernels(setup);
    MeasuredProducts products;
    on_own_thread("the products", [&] { products = measure_wanted(setup, wanted, time, progress); });
    return products;
}

}  // namespace pw
