// Images with a label per pixel, drawn with integers: every machine makes the same.
#include "workloads/data/dataset.h"
#include "workloads/random.h"

#include <algorithm>

namespace pw {
namespace {

constexpr int kSamples = 1024;
constexpr int kLargestStored = 64;  // pixels along a side (larger images are enlarged when read)
constexpr int kMostDiscs = 4;       // of an image
constexpr int kStripes = 24;        // brightness of a class's stripes, of 255
constexpr int kColourNoise = 32;    // largest deviation from colour and stripe, of 255

struct Disc {
    int row, column, radius, label;
    bool covers(int y, int x) const {
        const int down = y - row, right = x - column;
        return down * down + right * right <= radius * radius;
    }
};

// Numbers below a bound, in sequence.
class Draws {
public:
    explicit Draws(std::uint64_t key) : key_(key) {}
    int below(int bound) { return static_cast<int>(mixed(key_, next_++) % static_cast<std::uint64_t>(bound)); }

private:
    std::uint64_t key_, next_ = 0;
};

std::vector<Disc> draw_discs(std::uint64_t key, Dims dims, int classes) {
    Draws draws(key);
    std::vector<Disc> discs;
    const int side = std::min(dims.height, dims.width), count = classes > 1 ? 1 + draws.below(kMostDiscs) : 0;
    for (int k = 0; k < count; ++k) {
        const int row = draws.below(dims.height), column = draws.below(dims.width);
        const int radius = side / 8 + draws.below(side / 4 + 1);
        discs.push_back({row, column, radius, 1 + draws.below(classes - 1)});
    }
    return discs;
}

// The disc drawn last is on top.
int label_of(const std::vector<Disc>& discs, int row, int column) {
    const auto top = std::find_if(discs.rbegin(), discs.rend(), [&](const Disc& d) { return d.covers(row, column); });
    return top == discs.rend() ? 0 : top->label;
}

// A class has a colour, and stripes of its own width and direction.
int colour(std::uint64_t key, int label, int channel) {
    const std::uint64_t of_class = mixed(key, static_cast<std::uint64_t>(label));
    return 48 + static_cast<int>(mixed(of_class, static_cast<std::uint64_t>(channel)) % 160);
}
int stripe(int label, int row, int column) {
    const int width = 1 + label % 3, along = label % 2 == 0 ? row : column;
    return along / width % 2 == 0 ? kStripes : -kStripes;
}

}  // namespace

Dataset Dataset::segmentation(Dims input, int classes, std::int64_t seed) {
    const Dims stored{input.channels, std::min(input.height, kLargestStored), std::min(input.width, kLargestStored)};
    Dataset data(stored, input, classes, seed);
    data.labels_stored_ = {1, stored.height, stored.width};
    data.labels_read_ = {1, input.height, input.width};
    const std::uint64_t key = mixed(static_cast<std::uint64_t>(seed));
    const auto elements = static_cast<std::uint64_t>(stored.elements());
    const std::int64_t pixels = data.labels_stored_.elements();
    std::vector<int> colours;
    for (int label = 0; label < classes; ++label)
        for (int channel = 0; channel < stored.channels; ++channel)
            colours.push_back(colour(key, label, channel));
    data.pixels_.reserve(static_cast<std::size_t>(elements) * kSamples);
    data.labels_.reserve(static_cast<std::size_t>(pixels) * kSamples);
    for (int sample = 0; sample < kSamples; ++sample) {
        const std::vector<Disc> discs = draw_discs(mixed(key + 1, static_cast<std::uint64_t>(sample)), stored, classes);
        for (int row = 0; row < stored.height; ++row)
            for (int column = 0; column < stored.width; ++column)
                data.labels_.push_back(static_cast<std::uint16_t>(label_of(discs, row, column)));
        const std::uint16_t* labels = data.labels_.data() + sample * pixels;
        Draws noise(mixed(key + 2, static_cast<std::uint64_t>(sample)));
        for (int channel = 0; channel < stored.channels; ++channel)
            for (int row = 0; row < stored.height; ++row)
                for (int column = 0; column < stored.width; ++column) {
                    const int label = labels[row * stored.width + column];
                    const int clean = colours[label * stored.channels + channel] + stripe(label, row, column);
                    const int noisy = clean + noise.below(2 * kColourNoise + 1) - kColourNoise;
                    data.pixels_.push_back(static_cast<std::uint8_t>(std::clamp(noisy, 0, 255)));
                }
    }
    return data;
}

}  // namespace pw
