// MNIST's files: IDX, all numbers big-endian.
#include "workloads/data/dataset.h"
#include "workloads/error.h"

#include <filesystem>
#include <fstream>

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr Dims kImage{1, 28, 28};
constexpr std::uint32_t kMostImages = 1'000'000;
constexpr const char* kUnpack = "unpack the file again, or correct the path";

struct IdxFile {
    fs::path path;
    std::ifstream stream;
    std::vector<std::uint32_t> lengths;  // of the dimensions (the first counts samples)
};

fs::path mnist_folder(const std::string& folder) {
    std::error_code error;
    if (folder.empty())
        fail("the data set mnist has no folder\n  help: name the folder with train-images-idx3-ubyte");
    if (!fs::is_directory(folder, error))
        fail("'{}' is no folder\n  help: unpack MNIST's files there, or correct the path", folder);
    const fs::path inner = fs::path(folder) / "MNIST" / "raw";
    return fs::is_directory(inner, error) ? inner : fs::path(folder);
}

// `name` and `ending` are joined by a dash or, in some copies of the files, by a dot.
fs::path find_file(const fs::path& folder, const std::string& name, const std::string& ending) {
    std::error_code error;
    for (const char* joint : {"-", "."}) {
        const fs::path path = folder / (name + joint + ending);
        if (fs::is_regular_file(path, error))
            return path;
        if (const std::string packed = path.string() + ".gz"; fs::is_regular_file(packed, error))
            fail("'{}' is compressed\n  help: unpack it: gunzip {}", packed, packed);
    }
    fail("'{}' has no file {}-{}\n  help: put MNIST's files there, unpacked, or correct the path", folder.string(),
         name, ending);
}

std::uint32_t next_word(IdxFile& file) {
    unsigned char bytes[4] = {};
    const auto at = static_cast<std::int64_t>(file.stream.tellg());
    if (!file.stream.read(reinterpret_cast<char*>(bytes), sizeof bytes))
        fail("'{}' ends in its header, after byte {}\n  help: {}", file.path.string(), at, kUnpack);
    return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

// Opens an array of bytes with this number of dimensions, and reads the header: the lengths of the dimensions.
IdxFile open_idx(const fs::path& path, std::uint32_t dimensions) {
    IdxFile file{path, std::ifstream(path, std::ios::binary), {}};
    if (!file.stream)
        fail("cannot open '{}'\n  help: check the file's permissions", path.string());
    const std::uint32_t magic = next_word(file), expected = 0x800 + dimensions;
    if (magic >> 16 == 0x1f8b)
        fail("'{}' is compressed\n  help: unpack it: mv {} {}.gz; gunzip {}.gz", path.string(), path.string(),
             path.string(), path.string());
    if (magic != expected)
        fail("'{}' starts with 0x{:08x} instead of 0x{:08x}: no {}-dimensional IDX file of bytes\n  help: {}",
             path.string(), magic, expected, dimensions, kUnpack);
    for (std::uint32_t k = 0; k < dimensions; ++k)
        file.lengths.push_back(next_word(file));
    const std::uint32_t count = file.lengths[0];
    if (count < 1 || count > kMostImages)
        fail("'{}' announces {} samples at byte 4, but 1 to {} are read\n  help: {}", path.string(), count, kMostImages,
             kUnpack);
    return file;
}

// The data after the header. The file is as long as the header says.
std::vector<std::uint8_t> read_rest(IdxFile& file, std::uint64_t bytes_per_sample) {
    const std::uint64_t bytes = file.lengths[0] * bytes_per_sample, header = 4 + 4 * file.lengths.size();
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file.path, error);
    if (error)
        fail("'{}': {}\n  help: {}", file.path.string(), error.message(), kUnpack);
    if (size != header + bytes)
        fail("'{}' has {} bytes instead of {}: a header of {} and {} samples of {}\n  help: {}", file.path.string(),
             size, header + bytes, header, file.lengths[0], bytes_per_sample, kUnpack);
    std::vector<std::uint8_t> rest(bytes);
    if (!file.stream.read(reinterpret_cast<char*>(rest.data()), static_cast<std::streamsize>(bytes)))
        fail("cannot read '{}'\n  help: check the file's permissions and its disk", file.path.string());
    return rest;
}

std::vector<std::uint8_t> read_images(const fs::path& path) {
    IdxFile file = open_idx(path, 3);
    if (file.lengths[1] != static_cast<std::uint32_t>(kImage.height) ||
        file.lengths[2] != static_cast<std::uint32_t>(kImage.width))
        fail("'{}' has images of {}x{} pixels (bytes 8 to 15), but MNIST's are {}x{}\n  help: {}", path.string(),
             file.lengths[1], file.lengths[2], kImage.height, kImage.width, kUnpack);
    return read_rest(file, static_cast<std::uint64_t>(kImage.elements()));
}

std::vector<std::uint8_t> read_labels(const fs::path& path) {
    IdxFile file = open_idx(path, 1);
    std::vector<std::uint8_t> labels = read_rest(file, 1);
    for (std::size_t i = 0; i < labels.size(); ++i)
        if (labels[i] > 9)
            fail("byte {} of '{}' is label {}, but labels are 0 to 9\n  help: {}", i + 8, path.string(), labels[i],
                 kUnpack);
    return labels;
}

}  // namespace

Dataset Dataset::mnist(const std::string& folder, Dims input, std::int64_t seed) {
    const fs::path found = mnist_folder(folder);
    const fs::path images = find_file(found, "train-images", "idx3-ubyte");
    const fs::path labels = find_file(found, "train-labels", "idx1-ubyte");
    Dataset data(kImage, input, 10, seed);
    data.pixels_ = read_images(images);
    const std::vector<std::uint8_t> numbers = read_labels(labels);
    if (const std::size_t count = data.pixels_.size() / static_cast<std::size_t>(kImage.elements());
        count != numbers.size())
        fail("'{}' has {} images, '{}' has {} labels\n  help: take both files from the same place", images.string(),
             count, labels.string(), numbers.size());
    data.labels_.assign(numbers.begin(), numbers.end());
    return data;
}

}  // namespace pw
