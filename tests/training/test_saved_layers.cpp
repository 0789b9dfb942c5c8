// cpu against reference on the tensors of a ResNet-50 run: a cpu run saves every layer's inputs, parameters and
// output gradient, and both backends run a layer of every shape on them (PIPEWRIGHT_SOAK=1: every layer).
#include "exec/engine/arena.h"
#include "exec/training/stage_program.h"
#include "job/build.h"
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "tests/support/execution.h"
#include "tests/support/layer_rig.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"
#include "workloads/models/resnet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>

namespace pw {
namespace {

constexpr int kSamples = 2, kImageSize = 64;
constexpr double kTolerance = 1e-5;

struct Saved {
    std::vector<std::vector<float>> inputs, parameters;
    std::vector<float> output_gradient;
};

class Saver : public PassObserver {
public:
    Saver(const StageProgram& program, std::size_t layers) : saved(layers), program_(program) {}

    void before(int layer, Pass pass, const LayerArgs& args) override {
        if (pass == Pass::Input && args.output_gradient != nullptr)
            saved[layer].output_gradient = program_.kernel(layer).read_output(args.output_gradient);
    }
    void after(int layer, Pass pass, const LayerArgs& args) override {
        if (pass != Pass::Forward)
            return;
        for (const std::byte* input : args.inputs)
            saved[layer].inputs.push_back(program_.kernel(layer).read_input(input));
        saved[layer].parameters = program_.kernel(layer).store(args.weights, args.statistics);
    }
    std::vector<Saved> saved;

private:
    const StageProgram& program_;
};

// Forward and backward of the whole model on the cpu backend, one micro-batch.
std::vector<Saved> run_and_save(const Model& model) {
    const HostKernels& kernels = cpu_kernels();
    kernels.start_device(1);
    StageProgram program(model, split_at(model.layers, {}), 0, kernels, kSamples);
    std::vector<LayerBytes> bytes;
    for (const int layer : program.layers())
        bytes.push_back(program.bytes_of(layer));
    const StageLayout layout =
        layout_stage(model.layers, split_at(model.layers, {}), 0, bytes, kernels.data_bytes(model.input, kSamples));
    program.set_layout(layout);
    const StageBytes sizes = stage_bytes(layout);
    AlignedBytes weights(sizes.weights, 0), gradients(sizes.weights), statistics(sizes.statistics, 0),
        workspace(std::max(sizes.forward_workspace, sizes.backward_workspace)), data(sizes.data),
        until_input(sizes.until_input), until_weight(sizes.until_weight);
    Places places;
    places.data = data.get();
    places.until_input = until_input.get();
    places.until_weight = until_weight.get();
    places.workspace = workspace.get();
    places.weights = weights.get();
    places.statistics = statistics.get();
    places.gradients = gradients.get();
    program.initialise(1, weights.get(), statistics.get());
    Saver saver(program, bytes.size());
    program.set_observer(&saver);
    const Dataset set = Dataset::synthetic(model.input, model.classes, 1);
    const std::vector<Sample> samples{set.sample(0), set.sample(1)};
    const std::vector<int> labels{set.label(0), set.label(1)};
    kernels.load_data(set, samples, places.data);
    double loss = 0;
    places.labels = labels;
    places.loss = &loss;
    program.forward(places, true);
    program.backward(places, 1.0 / kSamples, {}, true);
    return std::move(saver.saved);
}

void load(LayerRig& rig, const Saved& saved, const std::vector<float>& gradient) {
    for (std::size_t k = 0; k < rig.inputs.size(); ++k)
        rig.kernel->fill_input(saved.inputs.at(k), rig.inputs[k].get());
    if (!saved.parameters.empty())
        rig.kernel->load(saved.parameters, rig.weights.get(), rig.statistics.get());
    if (!gradient.empty())
        rig.fill_gradient(gradient);
}

// Backends may round a value near zero to different sides of a ReLU, so that the gradient there is set to zero.
std::vector<float> safe_gradient(const Layer& layer, const Saved& saved) {
    std::vector<float> gradient = saved.output_gradient;
    if (!layer.relu || gradient.empty())
        return gradient;
    Layer plain = layer;
    plain.relu = false;
    LayerRig rig(reference_kernels(), plain, kSamples);
    load(rig, saved, {});
    rig.forward();
    const std::vector<float> values = rig.plain_output();
    for (std::size_t k = 0; k < values.size(); ++k)
        if (std::abs(values[k]) < 1e-4F)
            gradient[k] = 0;
    return gradient;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    double difference = 0, norm = 0;
    for (std::size_t k = 0; k < expected.size(); ++k) {
        difference += std::pow(double{actual[k]} - double{expected[k]}, 2);
        norm += std::pow(double{expected[k]}, 2);
    }
    EXPECT_LE(std::sqrt(difference), kTolerance * std::sqrt(norm)) << what;
}

TEST(SavedLayers, CpuEqualsReferenceOnAResNet50Run) {
    const Model model = build_resnet50(kImageSize, 10);
    const std::vector<Saved> saved = run_and_save(model);
    std::set<std::string> shapes;
    for (std::size_t number = 0; number < saved.size(); ++number) {
        const Layer& layer = model.layers[number];
        const auto [in, out] = std::pair(layer.input, layer.output);
        const bool is_new = shapes
                                .insert(fmt::format("{} {}x{} {}x{} {} {}", static_cast<int>(layer.kind), in.channels,
                                                    in.height, out.channels, out.height, layer.kernel, layer.stride))
                                .second;
        if (!is_new && !soaks())
            continue;
        const bool reads_data = inputs_of_layer(model.layers, static_cast<int>(number)).empty();
        const std::vector<float> gradient = safe_gradient(layer, saved[number]);
        LayerRig cpu(cpu_kernels(), layer, kSamples, reads_data);
        LayerRig reference(reference_kernels(), layer, kSamples, reads_data);
        for (LayerRig* rig : {&cpu, &reference}) {
            load(*rig, saved[number], gradient);
            rig->forward();
            LayerArgs args = rig->args();
            std::byte* none = nullptr;
            if (reads_data)
                args.input_gradients = {&none, 1};
            rig->kernel->backward_input(args);
            rig->kernel->backward_weight(args);
        }
        if (layer.kind == LayerKind::CrossEntropy)
            EXPECT_NEAR(cpu.loss(), reference.loss(), 1e-5 * std::abs(reference.loss()));
        else
            expect_near(cpu.plain_output(), reference.plain_output(), layer.name + " output");
        for (std::size_t k = 0; !reads_data && k < cpu.inputs.size(); ++k)
            expect_near(cpu.plain_input_gradient(k), reference.plain_input_gradient(k), layer.name + " input gradient");
        if (layer.parameters > 0)
            for (std::size_t k = 0; k < cpu.parameter_gradients().size(); ++k)
                expect_near(cpu.parameter_gradients()[k], reference.parameter_gradients()[k],
                            layer.name + " parameter gradient");
    }
    EXPECT_EQ(saved.size(), boost::num_vertices(model.layers));
    EXPECT_GT(shapes.size(), 40u);
}

double first_loss(const std::string& backend) {
    const Execution execution(R"(
workload: {model: resnet50, image_size: 64, classes: 10}
cluster: {devices: 1}
pipeline: {schedule: naive, micro_batches: 1, micro_batch_size: 2}
training: {steps: 1}
)",
                              {"run.backend=" + backend}, small_resnet(64));
    return execution.run().losses.at(0);
}

TEST(SavedLayers, WholeModelLossAgrees) { EXPECT_NEAR(first_loss("cpu"), first_loss("reference"), 1e-3); }

}  // namespace
}  // namespace pw
