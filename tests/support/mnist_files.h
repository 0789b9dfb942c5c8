// Small files in the shape of MNIST's.
#pragma once

#include "tests/support/temporary_folder.h"

#include <cstdint>
#include <string>

namespace pw {

// Returns the bytes of a word, which are big-endian.
inline std::string idx_word(std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8)
        bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
}

// Returns a file of images: pixel k of image i is i + k, modulo 256.
inline std::string idx_images(std::uint32_t count) {
    std::string bytes = idx_word(0x803) + idx_word(count) + idx_word(28) + idx_word(28);
    for (std::uint32_t image = 0; image < count; ++image)
        for (std::uint32_t pixel = 0; pixel < 784; ++pixel)
            bytes += static_cast<char>((image + pixel) & 0xff);
    return bytes;
}

// Returns a file of labels: the label of image i is i modulo 10.
inline std::string idx_labels(std::uint32_t count) {
    std::string bytes = idx_word(0x801) + idx_word(count);
    for (std::uint32_t image = 0; image < count; ++image)
        bytes += static_cast<char>(image % 10);
    return bytes;
}

inline void write_mnist_files(const TemporaryFolder& folder, std::uint32_t count) {
    folder.write("train-images-idx3-ubyte", idx_images(count));
    folder.write("train-labels-idx1-ubyte", idx_labels(count));
}

}  // namespace pw
