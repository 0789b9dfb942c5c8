#include "workloads/data/dataset.h"

#include "workloads/data/noise.h"
#include "workloads/error.h"
#include "workloads/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace pw {
namespace {

constexpr int kFiles = 5;
constexpr int kRecords = 10'000;  // per file
constexpr Dims kCifar{3, 32, 32};
constexpr std::size_t kPixels = 3072;
constexpr std::size_t kRecordBytes = 1 + kPixels;  // label, then red, green and blue planes
constexpr std::uintmax_t kFileBytes = kRecords * kRecordBytes;

constexpr int kSyntheticSamples = 2048;
constexpr int kGrid = 4;  // cells of a class's pattern along each side

// A keyed permutation of [0, count): a Feistel network on the next even number of bits, walked along
// its cycle until the value is in range. Less than 4 steps on average, and no state.
std::uint64_t permuted(std::uint64_t value, std::uint64_t count, std::uint64_t key) {
    const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
    const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
    do {
        std::uint64_t left = value >> half, right = value & mask;
        for (std::uint64_t round = 0; round < 6; ++round) {
            const std::uint64_t next = left ^ (mixed(key + round, right) & mask);
            left = right;
            right = next;
        }
        value = left << half | right;
    } while (value >= count);
    return value;
}

std::filesystem::path cifar_folder(const std::string& folder) {
    std::error_code error;
    if (folder.empty())
        fail("the data set cifar10 has no folder\n  help: name the folder with data_batch_1.bin");
    if (!std::filesystem::is_directory(folder, error))
        fail("'{}' is no folder\n  help: unpack cifar-10-binary.tar.gz there, or correct the path", folder);
    const std::filesystem::path inner = std::filesystem::path(folder) / "cifar-10-batches-bin";
    return std::filesystem::is_directory(inner, error) ? inner : std::filesystem::path(folder);
}

std::vector<std::filesystem::path> cifar_files(const std::string& folder) {
    std::vector<std::filesystem::path> files;
    std::string facts;
    const std::filesystem::path found = cifar_folder(folder);
    for (int i = 1; i <= kFiles; ++i) {
        files.push_back(found / fmt::format("data_batch_{}.bin", i));
        std::error_code error;
        const std::uintmax_t size = std::filesystem::file_size(files.back(), error);
        const std::string_view separator = facts.empty() ? "" : "; ";
        if (error)
            facts += fmt::format("{}'{}': {}", separator, files.back().string(), error.message());
        else if (size != kFileBytes)
            facts +=
                fmt::format("{}'{}' has {} bytes instead of {}", separator, files.back().string(), size, kFileBytes);
    }
    if (!facts.empty())
        fail(
            "{}\n  help: the data set has {} files of {} records; unpack cifar-10-binary.tar.gz again, or correct "
            "the path",
            facts, kFiles, kRecords);
    return files;
}

// A small random grid enlarged bilinearly, in integers so that every machine makes the same.
// `at` in 1/16 of a cell.
int pattern(std::uint64_t key, int channel, int row, int column, Dims dims) {
    const int y = row * kGrid * 16 / dims.height, x = column * kGrid * 16 / dims.width;
    const auto corner = [&](int down, int right) {
        const int cell = (channel * (kGrid + 1) + y / 16 + down) * (kGrid + 1) + x / 16 + right;
        return static_cast<int>(mixed(key, static_cast<std::uint64_t>(cell)) % 160) + 48;
    };
    const int fy = y % 16, fx = x % 16;
    return ((16 - fy) * ((16 - fx) * corner(0, 0) + fx * corner(0, 1)) +
            fy * ((16 - fx) * corner(1, 0) + fx * corner(1, 1))) /
           256;
}

std::vector<std::uint8_t> patterns(Dims dims, int classes, std::uint64_t seed) {
    std::vector<std::uint8_t> pixels;
    pixels.reserve(static_cast<std::size_t>(dims.elements()) * static_cast<std::size_t>(classes));
    for (int c = 0; c < classes; ++c)
        for (int channel = 0; channel < dims.channels; ++channel)
            for (int row = 0; row < dims.height; ++row)
                for (int column = 0; column < dims.width; ++column)
                    pixels.push_back(static_cast<std::uint8_t>(
                        pattern(mixed(seed, static_cast<std::uint64_t>(c)), channel, row, column, dims)));
    return pixels;
}

// A line of a plane in a crop: outside the image are zeros.
template <class Pixel>
struct CroppedLine {
    const Pixel* pixels;
    int first, step, width;  // column 0 shows pixel `first`; width 0: the line is outside
    Pixel operator[](int column) const {
        const int from = first + step * column;
        return from >= 0 && from < width ? pixels[from] : Pixel{0};
    }
};

template <class Pixel>
CroppedLine<Pixel> cropped_line(const Pixel* plane, Dims stored, const Sample& sample, int row) {
    const int from = sample.row + row;
    if (from < 0 || from >= stored.height)
        return {plane, 0, 0, 0};
    const int first = sample.column + (sample.flip ? stored.width - 1 : 0);
    return {plane + std::ptrdiff_t{from} * stored.width, first, sample.flip ? -1 : 1, stored.width};
}

// `line(row)[column]`: the pixels to interpolate. Returns the end of what it wrote.
template <class LineOf>
float* interpolate(LineOf line, std::span<const Dataset::Tap> rows, std::span<const Dataset::Tap> columns,
                   Dataset::Normalisation normalisation, float* out) {
    for (const Dataset::Tap& row : rows) {
        const auto above = line(row.low), below = line(row.high);
        for (const Dataset::Tap& column : columns) {
            const float top = static_cast<float>(above[column.low]) * (1 - column.weight) +
                              static_cast<float>(above[column.high]) * column.weight;
            const float bottom = static_cast<float>(below[column.low]) * (1 - column.weight) +
                                 static_cast<float>(below[column.high]) * column.weight;
            *out++ = (top * (1 - row.weight) + bottom * row.weight) * normalisation.scale + normalisation.shift;
        }
    }
    return out;
}

}  // namespace

Dataset::Dataset(Dims stored, Dims input, int classes, std::int64_t seed)
    : input_(input),
      stored_(stored),
      classes_(classes),
      seed_(seed),
      rows_(taps(stored.height, input.height)),
      columns_(taps(stored.width, input.width)) {}

// Pixel centres at half coordinates (align_corners = false), clamped at the borders.
std::vector<Dataset::Tap> Dataset::taps(int from, int to) {
    std::vector<Tap> result(static_cast<std::size_t>(to));
    for (int i = 0; i < to; ++i) {
        const double at = std::max(0.0, (i + 0.5) * from / to - 0.5);
        const int low = std::min(static_cast<int>(at), from - 1);
        result[static_cast<std::size_t>(i)] = {low, std::min(low + 1, from - 1), static_cast<float>(at - low)};
    }
    return result;
}

Dataset Dataset::cifar10(const std::string& folder, int image_size, std::int64_t seed) {
    const std::vector<std::filesystem::path> files = cifar_files(folder);
    Dataset data(kCifar, {3, image_size, image_size}, 10, seed);
    data.pixels_.reserve(kFiles * kRecords * kPixels);
    data.labels_.reserve(kFiles * kRecords);
    std::vector<char> record(kRecordBytes);
    for (const std::filesystem::path& file : files) {
        std::ifstream stream(file, std::ios::binary);
        for (int i = 0; i < kRecords; ++i) {
            if (!stream.read(record.data(), static_cast<std::streamsize>(record.size())))
                fail("cannot read record {} of '{}'\n  help: check the file's permissions and its disk", i,
                     file.string());
            const auto label = static_cast<std::uint8_t>(record[0]);
            if (label > 9)
                fail(
                    "record {} of '{}' has label {}, but labels are 0 to 9\n  help: the file is damaged; unpack "
                    "cifar-10-binary.tar.gz again",
                    i, file.string(), label);
            data.labels_.push_back(label);
            data.pixels_.insert(data.pixels_.end(), record.begin() + 1, record.end());
        }
    }
    return data;
}

Dataset Dataset::synthetic(Dims input, int classes, std::int64_t seed) {
    const Dims stored = input.channels == 3 ? kCifar : input;
    Dataset data(stored, input, classes, seed);
    const auto pixels = static_cast<std::size_t>(stored.elements());
    const std::uint64_t key = mixed(static_cast<std::uint64_t>(seed));
    const std::vector<std::uint8_t> base = patterns(stored, classes, key);
    data.pixels_.resize(pixels * kSyntheticSamples);
    const std::uint64_t noise_key = mixed(key + 1);  // the noise of pixel number k is drawn from mixed(key + 1, k)
    for (std::size_t i = 0; i < kSyntheticSamples; ++i) {
        const std::size_t label = i % static_cast<std::size_t>(classes), first = i * pixels;
        data.labels_.push_back(static_cast<std::uint16_t>(label));
        add_noise(noise_key, first, {&base[label * pixels], pixels}, &data.pixels_[first]);
    }
    return data;
}

int Dataset::place(std::int64_t index) const {
    assert(index >= 0);
    const auto count = static_cast<std::uint64_t>(samples());
    const std::uint64_t epoch = static_cast<std::uint64_t>(index) / count;
    const std::uint64_t key = mixed(static_cast<std::uint64_t>(seed_), epoch);
    return static_cast<int>(permuted(static_cast<std::uint64_t>(index) % count, count, key));
}

Sample Dataset::sample(std::int64_t index) const {
    constexpr std::uint64_t kDraws = 0x5EED0FC809;  // apart from the keys of the order
    std::uint64_t draw = mixed(mixed(kDraws, static_cast<std::uint64_t>(seed_)), static_cast<std::uint64_t>(index));
    const auto drawn = [&draw](int count) {
        const auto value = static_cast<int>(draw % static_cast<std::uint64_t>(count));
        draw /= static_cast<std::uint64_t>(count);
        return value;
    };
    const int padding = changes_.crop_padding;
    const int row = drawn(2 * padding + 1) - padding, column = drawn(2 * padding + 1) - padding;
    return {place(index), static_cast<std::int16_t>(row), static_cast<std::int16_t>(column),
            changes_.flip && drawn(2) == 1};
}

void Dataset::change(const ImageChanges& changes) {
    assert(changes.mean.empty() || static_cast<int>(changes.mean.size()) == input_.channels);
    assert(changes.mean.size() == changes.deviation.size());
    changes_ = changes;
}

// (pixel / 255 - mean) / deviation
Dataset::Normalisation Dataset::normalisation(int channel) const {
    constexpr std::array<double, 3> kMean{0.4914, 0.4822, 0.4465}, kDeviation{0.2023, 0.1994, 0.2010};  // CIFAR-10, RGB
    constexpr double kGreyMean = 0.1307, kGreyDeviation = 0.3081;                                       // MNIST
    const auto i = static_cast<std::size_t>(channel);
    double mean = stored_.channels == 3 ? kMean[i] : kGreyMean;
    double deviation = stored_.channels == 3 ? kDeviation[i] : kGreyDeviation;
    if (!changes_.mean.empty()) {
        mean = changes_.mean[i];
        deviation = changes_.deviation[i];
    }
    return {static_cast<float>(1 / (255 * deviation)), static_cast<float>(-mean / deviation)};
}

void Dataset::labels_at(const Sample& sample, std::span<int> labels) const {
    assert(std::ssize(labels) == labels_read_.elements());
    if (!tokens_.empty())
        return read_successors(sample, labels);
    const std::uint16_t* stored = labels_.data() + sample.place * labels_stored_.elements();
    const Sample shown = labels_stored_.elements() == 1 ? Sample{} : sample;  // the label of an image stays its own
    int* out = labels.data();
    for (int row = 0; row < labels_read_.height; ++row) {
        const auto line =
            cropped_line(stored, labels_stored_, shown, row * labels_stored_.height / labels_read_.height);
        for (int column = 0; column < labels_read_.width; ++column)
            *out++ = line[column * labels_stored_.width / labels_read_.width];
    }
}

int Dataset::label(std::int64_t index) const {
    int label = 0;
    labels_at({.place = place(index)}, {&label, 1});
    return label;
}

void Dataset::read_at(const Sample& sample, std::span<float> image) const {
    assert(image.size() == static_cast<std::size_t>(input_.elements()));
    if (!tokens_.empty())
        return read_tokens(sample, image);
    const std::uint8_t* planes = pixels_.data() + sample.place * stored_.elements();
    const bool whole = sample.row == 0 && sample.column == 0 && !sample.flip;
    float* out = image.data();
    for (int channel = 0; channel < input_.channels; ++channel) {
        const int stored = stored_.channels == 1 ? 0 : channel;
        const std::uint8_t* plane = planes + std::ptrdiff_t{stored} * stored_.height * stored_.width;
        const auto whole_line = [&](int row) { return plane + std::ptrdiff_t{row} * stored_.width; };
        const auto shown_line = [&](int row) { return cropped_line(plane, stored_, sample, row); };
        out = whole ? interpolate(whole_line, rows_, columns_, normalisation(channel), out)
                    : interpolate(shown_line, rows_, columns_, normalisation(channel), out);
    }
}

}  // namespace pw
