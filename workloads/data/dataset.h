// Images with a label per sample or a label per pixel, and sequences of tokens. The order of samples depends on the
// seed alone.
#pragma once

#include "workloads/data/sample.h"
#include "workloads/models/layer_graph.h"

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace pw {

// Changes of an image between its file and the model. Random choices depend only on the seed and the number of the
// sample in the endless sequence, never on the reader.
struct ImageChanges {
    int crop_padding = 0;                 // a random crop of the stored size out of the image with this border of zeros
    bool flip = false;                    // left to right, every other time
    std::vector<double> mean, deviation;  // per channel, of values in [0, 1], the data set's own if empty
    bool operator==(const ImageChanges&) const = default;
};

// A data set has its samples in memory as bytes (channels x height x width, planar), resized and normalised when read.
class Dataset {
public:
    // Reads CIFAR-10's binary files: data_batch_1..5.bin in `folder`. Throws Error (BadInput) that names the file, its
    // size and the size expected, or the record with a label above 9. A folder `cifar-10-batches-bin` inside `folder`
    // is found too.
    static Dataset cifar10(const std::string& folder, int image_size, std::int64_t seed);
    // Reads MNIST's IDX files train-images-idx3-ubyte and train-labels-idx1-ubyte in `folder`, or in its MNIST/raw.
    // Where `input` has three channels, each is the image's only plane. Throws Error (BadInput) that names the file and
    // the header or size expected, or the byte with a label above 9.
    static Dataset mnist(const std::string& folder, Dims input, std::int64_t seed);
    // Makes learnable classes in the layout of CIFAR-10 (or of `input` when `input` has one channel): a fixed smooth
    // random pattern per class plus noise. 2048 samples.
    static Dataset synthetic(Dims input, int classes, std::int64_t seed);
    // Makes images with a label per pixel: discs on a background, each filled with the pattern of its class, plus
    // noise. The background is class 0. Images above 64 pixels are enlarged from smaller images. 1024 samples.
    static Dataset segmentation(Dims input, int classes, std::int64_t seed);

    // Makes a data set from a stream of tokens cut into sequences of `length`, where the label of each token is the
    // next token. `tokens` has at least `length` + 1 tokens, all below the vocabulary.
    static Dataset sequences(std::vector<std::int32_t> tokens, int length, int vocabulary, std::int64_t seed);
    // Makes a stream that can be learned: each token has four possible successors, with probabilities of 4, 2, 1 and 1
    // in 8.
    static Dataset synthetic_text(int length, int vocabulary, std::int64_t seed);
    // Reads the bytes of a file. Throws Error (BadInput) for a file that cannot be read or has too few bytes.
    static Dataset text(const std::string& file, int length, int vocabulary, std::int64_t seed);
    // Sets the changes from now on. `changes.mean` and `changes.deviation` have a value per channel, or none.
    void change(const ImageChanges& changes);

    // Cuts sequences into equal slices: from now on a single slice is read, from token Sample::first on.
    void cut(int slices);

    Dims input() const { return input_; }
    int classes() const { return classes_; }
    int samples() const {
        return static_cast<int>(tokens_.empty() ? std::ssize(labels_) / labels_stored_.elements()
                                                : (std::ssize(tokens_) - 1) / stored_.elements());
    }
    int labels_per_sample() const { return static_cast<int>(labels_read_.elements()); }

    // Returns where sample number `index` of the endless sequence of shuffled epochs is stored.
    int place(std::int64_t index) const;
    // Returns a sample with the crop and the flip drawn from its number: the same for every caller, different in every
    // epoch.
    Sample sample(std::int64_t index) const;
    // Reads the image of a sample as plain CHW floats: cropped, flipped, resized, rescaled to [0, 1] and normalised per
    // channel. Allocates nothing. Any number of threads may call it.
    void read_at(const Sample& sample, std::span<float> image) const;
    // Reads the `labels_per_sample` labels of a sample, row by row: the nearest stored labels. Labels of pixels are
    // cropped and flipped with the pixels, and are 0 outside the image. Allocates nothing.
    void labels_at(const Sample& sample, std::span<int> labels) const;
    void read(std::int64_t index, std::span<float> image) const { read_at(sample(index), image); }
    int label(std::int64_t index) const;  // label of a sample with a single label

    // The parts of read_at's computation, for devices that compute it themselves: value = interpolated pixel * scale +
    // shift. A tap is the bilinear interpolation between two pixels of a row or column of the crop, which is as large
    // as stored().
    struct Tap {
        int low, high;
        float weight;  // weight of `high`
    };
    struct Normalisation {
        float scale, shift;
    };
    Dims stored() const { return stored_; }
    std::span<const std::uint8_t> pixels() const { return pixels_; }  // sample after sample, planar
    std::span<const Tap> rows() const { return rows_; }               // taps of the image as delivered
    std::span<const Tap> columns() const { return columns_; }
    Normalisation normalisation(int channel) const;
    // Returns the tokens of sequences, which have no pixels: sequence number `place` starts at place x length. Empty
    // for images.
    std::span<const std::int32_t> tokens() const { return tokens_; }

private:
    Dataset(Dims stored, Dims input, int classes, std::int64_t seed);
    static std::vector<Tap> taps(int from, int to);
    void read_tokens(const Sample& sample, std::span<float> out) const;
    void read_successors(const Sample& sample, std::span<int> out) const;

    Dims input_;   // as delivered
    Dims stored_;  // as stored
    Dims labels_read_{1}, labels_stored_{1};
    int classes_ = 0;
    std::int64_t seed_ = 1;
    ImageChanges changes_;
    std::vector<Tap> rows_, columns_;
    std::vector<std::uint8_t> pixels_;
    std::vector<std::uint16_t> labels_;
    std::vector<std::int32_t> tokens_;
};

}  // namespace pw
