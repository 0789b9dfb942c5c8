// MNIST's files as images and labels, and the errors of broken ones.
#include "job/build.h"
#include "job/config/config.h"
#include "job/load.h"
#include "tests/support/mnist_files.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

constexpr Dims kPlane{1, 28, 28};

Dataset load(const TemporaryFolder& folder, Dims input = kPlane) {
    return Dataset::mnist(folder.path().string(), input, 1);
}

std::vector<float> image_of(const Dataset& data, int place) {
    std::vector<float> image(static_cast<std::size_t>(data.input().elements()));
    data.read_at({.place = place}, image);
    return image;
}

float normalised(int pixel) { return static_cast<float>((pixel / 255.0 - 0.1307) / 0.3081); }

TEST(Mnist, DeliversNormalisedPixelsAndLabels) {
    const TemporaryFolder folder;
    write_mnist_files(folder, 23);
    const Dataset data = load(folder);
    ASSERT_EQ(data.samples(), 23);
    EXPECT_EQ(data.classes(), 10);
    EXPECT_EQ(data.input(), kPlane);
    for (int place = 0; place < data.samples(); ++place) {
        int label = -1;
        data.labels_at({.place = place}, {&label, 1});
        EXPECT_EQ(label, place % 10);
        const std::vector<float> image = image_of(data, place);
        for (std::size_t k = 0; k < image.size(); ++k)
            ASSERT_NEAR(image[k], normalised((place + static_cast<int>(k)) % 256), 1e-5) << place << " " << k;
    }
}

TEST(Mnist, ThreeChannelsRepeatThePlane) {
    const TemporaryFolder folder;
    write_mnist_files(folder, 3);
    for (const int size : {28, 64}) {
        const std::vector<float> grey = image_of(load(folder, {1, size, size}), 2);
        const std::vector<float> colours = image_of(load(folder, {3, size, size}), 2);
        ASSERT_EQ(colours.size(), 3 * grey.size());
        for (std::size_t k = 0; k < colours.size(); ++k)
            ASSERT_EQ(colours[k], grey[k % grey.size()]) << k;
    }
}

TEST(Mnist, IsFoundUnderItsOtherNames) {
    const TemporaryFolder dots;
    dots.write("train-images.idx3-ubyte", idx_images(2));
    dots.write("train-labels.idx1-ubyte", idx_labels(2));
    EXPECT_EQ(load(dots).samples(), 2);
    const TemporaryFolder inner;
    std::filesystem::create_directories(inner.path() / "MNIST" / "raw");
    inner.write("MNIST/raw/train-images-idx3-ubyte", idx_images(4));
    inner.write("MNIST/raw/train-labels-idx1-ubyte", idx_labels(4));
    EXPECT_EQ(load(inner).samples(), 4);
}

TEST(Mnist, IsWhatTheConfigurationNames) {
    const TemporaryFolder folder;
    write_mnist_files(folder, 5);
    for (const char* model : {"mlp", "resnet50, image_size: 32"}) {
        const Config config = load_config(
            folder.write("cfg.yaml", fmt::format("workload: {{model: {}, dataset: mnist, path: .}}\n", model)), {});
        const Model built = build_model(config);
        const Dataset data = open_dataset(config, built);
        EXPECT_EQ(data.samples(), 5);
        EXPECT_EQ(data.input(), built.input);
        EXPECT_EQ(data.stored(), kPlane);
    }
}

// Without a path, a synthetic set of the same shape is used.
TEST(Mnist, HasASyntheticSubstitute) {
    const TemporaryFolder folder;
    const Config config = load_config(folder.write("cfg.yaml", "workload: {model: mlp, dataset: mnist}\n"), {});
    const Dataset data = open_dataset(config, build_model(config));
    EXPECT_EQ(data.input(), kPlane);
    EXPECT_EQ(data.classes(), 10);
}

struct BrokenSet {
    const char* name;
    std::string images, labels;
    std::vector<std::string> says;
};
void PrintTo(const BrokenSet& broken, std::ostream* out) { *out << broken.name; }

class BrokenMnist : public testing::TestWithParam<BrokenSet> {};
TEST_P(BrokenMnist, IsRefusedWithFileFactAndHelp) {
    const TemporaryFolder folder;
    folder.write("train-images-idx3-ubyte", GetParam().images);
    folder.write("train-labels-idx1-ubyte", GetParam().labels);
    const std::string message = refusal([&] { load(folder); });
    expect_says(message, GetParam().says);
    expect_says(message, {folder.path().string(), "\n  help: "});
}

std::string replaced(std::string text, std::size_t at, const std::string& bytes) {
    return text.replace(at, bytes.size(), bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Grid, BrokenMnist,
    testing::Values(
        BrokenSet{"empty", "", idx_labels(2), {"train-images-idx3-ubyte' ends in its header, after byte 0"}},
        BrokenSet{"half a header", idx_images(2).substr(0, 11), idx_labels(2), {"ends in its header, after byte 8"}},
        BrokenSet{"exchanged", idx_labels(2), idx_images(2), {"starts with 0x00000801 instead of 0x00000803"}},
        BrokenSet{"floats", replaced(idx_images(2), 2, "\x0d"), idx_labels(2), {"0x00000d03 instead of 0x00000803"}},
        BrokenSet{"little-endian",
                  replaced(idx_images(2), 0, std::string("\x03\x08\0\0", 4)),
                  idx_labels(2),
                  {"starts with 0x03080000"}},
        BrokenSet{"gzip", "\x1f\x8b\x08\x08 and so on", idx_labels(2), {"is compressed", "gunzip"}},
        BrokenSet{
            "no images", replaced(idx_images(2), 4, idx_word(0)), idx_labels(2), {"announces 0 samples at byte 4"}},
        BrokenSet{"huge",
                  replaced(idx_images(2), 4, idx_word(0xffffffff)),
                  idx_labels(2),
                  {"announces 4294967295 samples at byte 4", "1 to 1000000"}},
        BrokenSet{"many",
                  replaced(idx_images(2), 4, idx_word(1'000'000)),
                  idx_labels(2),
                  {"has 1584 bytes instead of 784000016: a header of 16 and 1000000 samples of 784"}},
        BrokenSet{"short", idx_images(2).substr(0, 1583), idx_labels(2), {"has 1583 bytes instead of 1584"}},
        BrokenSet{"long", idx_images(2) + "x", idx_labels(2), {"has 1585 bytes instead of 1584"}},
        BrokenSet{"other size",
                  replaced(idx_images(2), 8, idx_word(0xffffffff)),
                  idx_labels(2),
                  {"images of 4294967295x28 pixels (bytes 8 to 15), but MNIST's are 28x28"}},
        BrokenSet{"huge labels",
                  idx_images(2),
                  replaced(idx_labels(2), 4, idx_word(0x80000000)),
                  {"train-labels-idx1-ubyte' announces 2147483648 samples"}},
        BrokenSet{"short labels", idx_images(2), idx_labels(2).substr(0, 9), {"has 9 bytes instead of 10"}},
        BrokenSet{"label", idx_images(2), replaced(idx_labels(2), 9, "\x0a"), {"byte 9 of '", "is label 10"}},
        BrokenSet{"counts", idx_images(2), idx_labels(3), {"has 2 images", "has 3 labels", "same place"}}),
    [](const auto& test) { return fmt::format("Nr{}", test.index); });

TEST(BrokenMnist, NamesWhatIsMissing) {
    EXPECT_TRUE(contains(refusal([] { Dataset::mnist("", kPlane, 1); }), "name the folder"));
    expect_says(refusal([] { Dataset::mnist("/nowhere/at/all", kPlane, 1); }), {"/nowhere/at/all", "correct the path"});
    const TemporaryFolder folder;
    folder.write("train-images-idx3-ubyte", idx_images(2));
    expect_says(refusal([&] { load(folder); }), {"has no file train-labels-idx1-ubyte", "help: "});
    const std::string packed = folder.write("train-labels-idx1-ubyte.gz", "\x1f\x8b");
    expect_says(refusal([&] { load(folder); }), {"'" + packed + "' is compressed", "gunzip " + packed});
}

// Whatever the value of a header's byte, the files are read or refused.
TEST(BrokenMnist, EveryByteOfTheHeadersMatters) {
    const TemporaryFolder folder;
    const std::string images = idx_images(2), labels = idx_labels(2);
    int read = 0;
    for (std::size_t at = 0; at < 16 + 8; ++at)
        for (const int change : {0x01, 0x02, 0x10, 0x80, 0xff}) {
            std::string bytes = at < 16 ? images : labels;
            bytes[at % 16] = static_cast<char>(bytes[at % 16] ^ change);
            folder.write("train-images-idx3-ubyte", at < 16 ? bytes : images);
            folder.write("train-labels-idx1-ubyte", at < 16 ? labels : bytes);
            try {
                load(folder);
                ++read;
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), ExitCode::BadInput);
            }
        }
    EXPECT_EQ(read, 0);
}

}  // namespace
}  // namespace pw
