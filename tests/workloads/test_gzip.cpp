// Files compressed with gzip are read, and refused with the place if they are damaged or made to fill memory.
#include "workloads/text/gzip.h"

#include "tests/support/temporary_folder.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace pw {

namespace {

constexpr const char* kHelp = "name another file";

std::string compressed(const std::string& text) {
    std::string bytes;
    GzipWriter writer([&](std::string_view more) { bytes += more; });
    writer.write(text);
    writer.finish();
    return bytes;
}

std::string text_of(std::istream& stream) {
    std::string text;
    std::array<char, 1 << 16> piece;
    while (stream.read(piece.data(), piece.size()), stream.gcount() > 0)
        text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
    return text;
}

// Digits do not shrink below a third.
std::string digits(std::size_t count) {
    std::mt19937 random(1);
    std::string text;
    while (text.size() < count)
        text += static_cast<char>('0' + random() % 10);
    return text;
}

std::string refusal_of(const std::string& bytes, std::uintmax_t most = 1 << 20) {
    try {
        (void)gunzip(bytes, "x.gz", kHelp, most);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        return error.what();
    }
    return "";
}

class Gzip : public testing::Test {
protected:
    std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
    std::string bytes_of(const std::string& name) const {
        std::ifstream in(file(name), std::ios::binary);
        return text_of(in);
    }
    TemporaryFolder folder_;
};

}  // namespace

TEST_F(Gzip, FilesAreWrittenByTheirNameAndReadByTheirFirstBytes) {
    for (const std::string& text : {std::string(), std::string("x"), digits(300'000)}) {
        write_file(file("x.json.gz"), text);
        EXPECT_TRUE(is_gzip(bytes_of("x.json.gz")));
        EXPECT_LE(bytes_of("x.json.gz").size(), text.size() / 2 + 30);
        EXPECT_EQ(read_text(file("x.json.gz"), kHelp), text);
        EXPECT_EQ(text_of(*open_text(file("x.json.gz"), kHelp, 1 << 20)), text);
        std::filesystem::rename(file("x.json.gz"), file("x.json"));
        EXPECT_EQ(read_text(file("x.json"), kHelp), text);
        const std::string first = bytes_of("x.json");
        write_file(file("again.gz"), text);
        EXPECT_EQ(bytes_of("again.gz"), first);  // no time and no name in it
        write_file(file("plain.json"), text);
        EXPECT_EQ(bytes_of("plain.json"), text);
        EXPECT_EQ(text_of(*open_text(file("plain.json"), kHelp, 1 << 20)), text);
    }
}

// As `cat a.gz b.gz` makes them, and gzip itself reads them.
TEST_F(Gzip, MembersFollowEachOther) {
    EXPECT_EQ(gunzip(compressed("one, ") + compressed("") + compressed("two"), "x.gz", kHelp, 100), "one, two");
}

TEST_F(Gzip, ADamagedFileIsRefusedWithItsPlace) {
    const std::string text = digits(2000), whole = compressed(text);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const std::string error = refusal_of(whole.substr(0, size));
        EXPECT_NE(error.find("the file ends in the middle"), std::string::npos) << size << error;
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
        const std::string error = refusal_of(damaged);
        if (error.empty()) {  // the time in the header, the bits after the last block
            EXPECT_EQ(gunzip(damaged, "x.gz", kHelp, 1 << 20), text) << at;
        } else {
            EXPECT_NE(error.find("'x.gz' cannot be decompressed at byte "), std::string::npos) << at << error;
        }
    }
    EXPECT_NE(refusal_of(whole + "more").find("cannot be decompressed"), std::string::npos);
    write_file(file("plain"), whole.substr(0, 900));
    EXPECT_THROW(read_text(file("plain"), kHelp), Error);
    EXPECT_THROW(text_of(*open_text(file("plain"), kHelp, 1 << 20)), Error);
}

TEST_F(Gzip, ASmallFileThatHoldsVeryMuchIsRefused) {
    EXPECT_NE(refusal_of(compressed(digits(20'000)), 10'000).find("more than is read\n  help: name another file"),
              std::string::npos);
    const std::string bomb = compressed(std::string(std::size_t{66} << 20, ' '));
    EXPECT_LT(bomb.size(), std::size_t{100'000});
    EXPECT_NE(refusal_of(bomb, kMostTrace).find("'x.gz' holds more than 200 times its size"), std::string::npos);
    write_file(file("bomb.json"), bomb);
    try {
        const auto stream = open_text(file("bomb.json"), kHelp, kMostTrace);
        FAIL() << text_of(*stream).size();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("200 times"), std::string::npos);
    }
    const std::string even(std::size_t{4} << 20, ' ');  // much less than the machine's memory
    EXPECT_EQ(gunzip(compressed(even), "x.gz", kHelp, kMostText), even);
}

}  // namespace pw
