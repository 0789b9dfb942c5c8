// Files in the shape of CIFAR-10's: they are sparse, hence quick to make, and hold black images of label 0.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pw {

inline constexpr std::uintmax_t kCifarFileBytes = 30'730'000;

inline std::filesystem::path cifar_file(const std::filesystem::path& folder, int number) {
    return folder / fmt::format("data_batch_{}.bin", number);
}

inline void write_cifar_files(const std::filesystem::path& folder, int files = 5) {
    std::filesystem::create_directories(folder);
    for (int i = 1; i <= files; ++i) {
        std::ofstream(cifar_file(folder, i)).flush();
        std::filesystem::resize_file(cifar_file(folder, i), kCifarFileBytes);
    }
}

// Overwrites bytes of one record.
inline void write_record(const std::filesystem::path& file, int record, int offset, const std::string& bytes) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(std::streamoff{record} * 3073 + offset);
    stream << bytes;
}

}  // namespace pw
