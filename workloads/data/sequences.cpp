// Sequences of tokens: a stream cut into windows. Each window also has the successors of its tokens.
#include "workloads/data/dataset.h"
#include "workloads/error.h"
#include "workloads/random.h"
#include "workloads/text/files.h"

#include <algorithm>
#include <cassert>
#include <fstream>

namespace pw {
namespace {

constexpr std::int64_t kMostSequences = 2048, kFewestSequences = 64;
constexpr std::int64_t kEnoughTokens = std::int64_t{1} << 22;  // of a synthetic stream, if it has enough sequences
constexpr std::uint64_t kDraws = 8;
constexpr std::uint64_t kSuccessors[kDraws] = {0, 0, 0, 0, 1, 1, 2, 3};  // of a token, by draw

std::int64_t synthetic_sequences(int length) {
    return std::clamp(kEnoughTokens / length, kFewestSequences, kMostSequences);
}

// Each token has four possible successors, and the first follows half of the time.
std::vector<std::int32_t> chain(std::int64_t count, int vocabulary, std::uint64_t key) {
    std::vector<std::int32_t> tokens{0};
    tokens.reserve(static_cast<std::size_t>(count));
    while (std::ssize(tokens) < count) {
        const std::uint64_t drawn = mixed(key + 1, tokens.size()) % kDraws;
        const std::uint64_t successor =
            mixed(mixed(key, static_cast<std::uint64_t>(tokens.back())), kSuccessors[drawn]);
        tokens.push_back(static_cast<std::int32_t>(successor % static_cast<std::uint64_t>(vocabulary)));
    }
    return tokens;
}

std::vector<std::int32_t> bytes_of_file(const std::string& file) {
    std::ifstream stream = open_file(file, "name a file of text", kMostTokens);
    std::vector<std::int32_t> tokens;
    char block[1 << 16];
    while (stream.read(block, sizeof block), stream.gcount() > 0)
        for (std::streamsize i = 0; i < stream.gcount(); ++i)
            tokens.push_back(static_cast<std::uint8_t>(block[i]));
    return tokens;
}

}  // namespace

Dataset Dataset::sequences(std::vector<std::int32_t> tokens, int length, int vocabulary, std::int64_t seed) {
    const Dims input{1, length, 1};
    Dataset data(input, input, vocabulary, seed);
    data.labels_read_ = data.labels_stored_ = input;
    data.tokens_ = std::move(tokens);
    return data;
}

Dataset Dataset::synthetic_text(int length, int vocabulary, std::int64_t seed) {
    const std::uint64_t key = mixed(static_cast<std::uint64_t>(seed));
    return sequences(chain(synthetic_sequences(length) * length + 1, vocabulary, key), length, vocabulary, seed);
}

Dataset Dataset::text(const std::string& file, int length, int vocabulary, std::int64_t seed) {
    std::vector<std::int32_t> tokens = bytes_of_file(file);
    if (std::ssize(tokens) <= length)
        fail_about({Setting::DataPath, Setting::SequenceLength},
                   "the text '{}' has {} bytes; one sequence and the next byte take {}\n  help: name a longer text "
                   "file, or take shorter sequences",
                   file, tokens.size(), length + 1);
    return sequences(std::move(tokens), length, vocabulary, seed);
}

// Sequence `place` starts at the end of the previous sequence. The label of its last token is the first token of the
// next.
void Dataset::read_tokens(const Sample& sample, std::span<float> out) const {
    std::copy_n(tokens_.begin() + sample.place * stored_.elements() + sample.first, out.size(), out.begin());
}

void Dataset::read_successors(const Sample& sample, std::span<int> out) const {
    std::copy_n(tokens_.begin() + sample.place * stored_.elements() + sample.first + 1, out.size(), out.begin());
}

void Dataset::cut(int slices) {
    assert(slices == 1 || (!tokens_.empty() && input_.height % slices == 0));
    input_.height /= slices;
    labels_read_.height /= slices;
}

}  // namespace pw
