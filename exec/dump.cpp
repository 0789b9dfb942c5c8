#include "exec/dump.h"

#include "exec/host/kernel_work.h"
#include "workloads/error.h"

#include <filesystem>
#include <fstream>

namespace pw {

void write_npy(const std::string& file, const std::vector<int>& shape, const std::vector<float>& values) {
    std::string dims;
    for (const int size : shape)
        dims += fmt::format("{}, ", size);
    std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims);
    constexpr std::size_t kPrefix = 10, kAlign = 64;  // magic, version and length come before the header
    header.append((kAlign - (kPrefix + header.size() + 1) % kAlign) % kAlign, ' ');
    header += '\n';
    std::ofstream out(file, std::ios::binary);
    const auto length = static_cast<std::uint16_t>(header.size());
    out << "\x93NUMPY" << '\x01' << '\0' << static_cast<char>(length & 0xff) << static_cast<char>(length >> 8)
        << header;
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    if (!out.flush())
        fail_with(ExitCode::RunFailed, "cannot write {}", file);
}

namespace {

void write_tensors(const std::filesystem::path& folder, const std::vector<std::vector<NamedTensor>>& by_device) {
    std::filesystem::create_directories(folder);
    for (const std::vector<NamedTensor>& tensors : by_device)
        for (const NamedTensor& tensor : tensors)
            write_npy((folder / (tensor.name + ".npy")).string(), tensor.shape, tensor.values);
}

}  // namespace

void write_dump(const std::string& folder, const KernelWork& run, double loss) {
    const std::filesystem::path root(folder);
    write_tensors(root / "initial", run.initial);
    if (run.plan.trains()) {
        write_tensors(root / "gradients", run.gradients);
        write_tensors(root / "updated", run.updated);
    }
    const Dims input = run.data.input();
    const int samples = run.plan.per_update() * run.job.config.pipeline.micro_batch_size;
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

}  // namespace pw
