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
    std::vector<float> labels;
    for (int sample = 0; sample < samples; ++sample) {
        const auto size = static_cast<std::size_t>(input.elements());
        run.data.read_at(run.sample(sample), {images.data() + static_cast<std::size_t>(sample) * size, size});
        labels.push_back(static_cast<float>(run.data.label(sample)));
    }
    write_npy((root / "images.npy").string(), {samples, input.channels, input.height, input.width}, images);
    write_npy((root / "labels.npy").string(), {samples}, labels);
    write_npy((root / "loss.npy").string(), {1}, {static_cast<float>(loss)});
}

}  // namespace pw
