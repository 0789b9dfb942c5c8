#include "exec/training/dump.h"

#include "exec/training/npy.h"
#include "exec/training/parameter_files.h"
#include "exec/training/training.h"
#include "workloads/text/files.h"

#include <filesystem>

namespace pw {

namespace {

void write_devices(const std::filesystem::path& folder, const std::vector<std::vector<NamedTensor>>& by_device) {
    for (const std::vector<NamedTensor>& tensors : by_device)
        write_parameters(folder.string(), tensors);
}

void write_files(const std::filesystem::path& root, const Training& run, double loss) {
    write_devices(root / "initial", run.record().kept(Record::Moment::Initial));
    if (run.plan.trains()) {
        write_devices(root / "gradients", run.record().kept(Record::Moment::Gradients));
        write_devices(root / "updated", run.record().kept(Record::Moment::Updated));
    }
    const Dims input = run.data.input();
    const auto samples = static_cast<int>(run.plan.samples_of(0));
    std::vector<float> images(static_cast<std::size_t>(input.elements()) * static_cast<std::size_t>(samples));
    const auto positions = static_cast<std::size_t>(run.data.labels_per_sample());
    std::vector<int> labels(positions * static_cast<std::size_t>(samples));
    for (int sample = 0; sample < samples; ++sample) {
        const auto size = static_cast<std::size_t>(input.elements());
        const Sample shown = run.sample(sample);
        run.data.read_at(shown, {images.data() + static_cast<std::size_t>(sample) * size, size});
        run.data.labels_at(shown, {labels.data() + static_cast<std::size_t>(sample) * positions, positions});
    }
    write_npy((root / "images.npy").string(), {samples, input.channels, input.height, input.width}, images);
    std::vector<int> labelled{samples};
    if (positions > 1)
        labelled.push_back(static_cast<int>(positions));
    write_npy((root / "labels.npy").string(), labelled, {labels.begin(), labels.end()});
    write_npy((root / "loss.npy").string(), {1}, {static_cast<float>(loss)});
}

}  // namespace

void write_dump(const std::string& folder, const Training& run, double loss) {
    NewFolder fresh(folder);
    fresh.fill([&](const std::string& draft) { write_files(draft, run, loss); });
    fresh.finish();
}

}  // namespace pw
