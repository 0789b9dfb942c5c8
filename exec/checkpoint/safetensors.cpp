#include "exec/checkpoint/safetensors.h"

#include "workloads/error.h"
#include "workloads/text/files.h"
#include "workloads/text/json_text.h"

#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

namespace pw {

static_assert(std::endian::native == std::endian::little);  // as in the format

namespace {

using nlohmann::json;

constexpr std::uint64_t kMostTensorHeader = 100'000'000;  // the package's own limit
constexpr const char* kTensorsHelp = "name a file of float32 tensors that pipewright or the safetensors package wrote";

class Hasher {
public:
    Hasher() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
    void feed(std::string_view bytes) {
        XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
        bytes_ += bytes.size();
    }
    Digest digest() const { return {bytes_, fmt::format("{:016x}", XXH3_64bits_digest(state_.get()))}; }

private:
    std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
    std::uintmax_t bytes_ = 0;
};

std::string tensor_text(const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string header_of(const std::vector<NamedTensor>& tensors, const TensorMetadata& metadata) {
    std::string text = "{\"__metadata__\":" + tensor_text(metadata);
    std::uint64_t at = 0;
    for (const NamedTensor& tensor : tensors) {
        const std::uint64_t end = at + tensor.values.size() * sizeof(float);
        text += fmt::format(",{}:{}", tensor_text(tensor.name),
                            tensor_text({{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}}));
        at = end;
    }
    text += '}';
    text.append((8 - text.size() % 8) % 8, ' ');  // aligns the values
    return text;
}

[[noreturn]] void fail_file(const std::string& path, const std::string& fact) {
    fail("'{}' {}\n  help: {}", path, shortened(fact, 300), kTensorsHelp);
}

struct Listed {
    NamedTensor tensor;
    std::uint64_t begin, end;
};

Listed listed(const std::string& path, const std::string& name, const json& entry, std::uint64_t size) {
    const auto refuse = [&](const std::string& fact) {
        fail_file(path, fmt::format("has a tensor '{}' {}", name, fact));
    };
    const auto field = [&](const char* key) -> const json& {
        if (!entry.is_object() || !entry.contains(key))
            refuse(fmt::format("without {}", key));
        return entry[key];
    };
    if (field("dtype") != "F32")
        refuse(fmt::format("of type {}, where F32 is expected", shown(field("dtype"))));
    Listed all{{name, {}, {}}, 0, 0};
    std::uint64_t elements = 1;
    if (!field("shape").is_array())
        refuse("whose shape is not valid");
    for (const json& extent : field("shape")) {
        if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > std::numeric_limits<int>::max())
            refuse("whose shape is not valid");
        all.tensor.shape.push_back(extent.get<int>());
        const auto many = static_cast<std::uint64_t>(all.tensor.shape.back());
        if (many > 0 && elements > size / many)
            refuse("that is larger than the file");
        elements *= many;
    }
    const json& offsets = field("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
        refuse("without two data_offsets");
    all.begin = offsets[0].get<std::uint64_t>();
    all.end = offsets[1].get<std::uint64_t>();
    if (all.end < all.begin || all.end > size || all.end - all.begin != elements * sizeof(float))
        refuse("whose data_offsets do not fit its shape or the file");
    return all;
}

// Takes the tensors one by one while the header is parsed, so that the time is linear in its size, not quadratic.
class TensorHeader {
public:
    // `size` is the size of the values.
    TensorHeader(const std::string& path, const std::string& text, std::uint64_t size)
        : path_(path), size_(size), keys_(fmt::format("the header of '{}'", path)) {
        const auto kept = [this](int depth, json::parse_event_t event, const json& value) {
            return keep(depth, event, value);
        };
        (void)parse_json<json>(text, fmt::format("the header of '{}'", path), kept, kTensorsHelp);
    }

    std::vector<Listed> tensors;
    TensorMetadata metadata;

private:
    bool keep(int depth, json::parse_event_t event, const json& value) {
        using Event = json::parse_event_t;
        keys_.see(event, value);
        if (depth == 0 && (event == Event::array_start || event == Event::value))
            fail_file(path_, "has no header that is a JSON object");
        if (depth != 1)
            return true;
        if (event == Event::key)
            name_ = value.get<std::string>();
        const bool is_whole = event == Event::value || event == Event::object_end || event == Event::array_end;
        if (is_whole && name_ == "__metadata__")
            take_metadata(value);
        else if (is_whole)
            tensors.push_back(listed(path_, name_, value, size_));
        return !is_whole;
    }

    void take_metadata(const json& value) {
        if (!value.is_object())
            return;
        for (const auto& [key, text] : value.items())
            if (text.is_string())
                metadata[key] = text.get<std::string>();
    }

    const std::string& path_;
    const std::uint64_t size_;
    UniqueKeys keys_;
    std::string name_;  // of the value that is being read
};

}  // namespace

Digest write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors, const TensorMetadata& metadata) {
    NewFile out(path);
    out.bypass_cache();
    Hasher hasher;
    const auto write = [&](const void* data, std::size_t bytes) {
        const std::string_view text(static_cast<const char*>(data), bytes);
        hasher.feed(text);
        out.write(text);
    };
    const std::string header = header_of(tensors, metadata);
    const std::uint64_t length = header.size();
    write(&length, sizeof length);
    write(header.data(), header.size());
    for (const NamedTensor& tensor : tensors)
        write(tensor.values.data(), tensor.values.size() * sizeof(float));
    out.finish();
    return hasher.digest();
}

std::string hash_of_text(std::string_view text) {
    Hasher hasher;
    hasher.feed(text);
    return hasher.digest().hash;
}

Digest digest_of(const std::string& path) {
    std::ifstream file = open_file(path, kTensorsHelp);
    Hasher hasher;
    std::string piece(std::size_t{1} << 20, '\0');
    while (file) {
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        hasher.feed(std::string_view(piece).substr(0, static_cast<std::size_t>(file.gcount())));
    }
    if (file.bad())
        fail_file(path, "cannot be read to its end");
    return hasher.digest();
}

TensorFile read_tensors(const std::string& path) {
    std::ifstream in = open_file(path, kTensorsHelp);
    std::error_code error;
    const std::uint64_t whole = std::filesystem::file_size(path, error);
    if (error)
        fail_file(path, fmt::format("cannot be read: {}", error.message()));
    std::uint64_t length = 0;
    if (whole < sizeof length || !in.read(reinterpret_cast<char*>(&length), sizeof length))
        fail_file(path, "is too short for a file of tensors");
    if (length > kMostTensorHeader || length > whole - sizeof length)
        fail_file(path, "has a header that is longer than the file");
    std::string text(length, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!in)
        fail_file(path, "is cut off");
    const std::uint64_t size = whole - sizeof length - length;
    TensorHeader header(path, text, size);
    TensorFile file;
    file.metadata = std::move(header.metadata);
    std::vector<Listed>& all = header.tensors;
    std::ranges::stable_sort(all, {}, [](const Listed& each) { return std::pair(each.begin, each.end); });
    std::uint64_t at = 0;
    for (Listed& each : all) {
        if (each.begin != at)
            fail_file(path, fmt::format("has values that no tensor or two tensors own, before '{}'", each.tensor.name));
        each.tensor.values.resize((each.end - each.begin) / sizeof(float));
        if (!in.read(reinterpret_cast<char*>(each.tensor.values.data()),
                     static_cast<std::streamsize>(each.end - each.begin)))
            fail_file(path, "is cut off");
        at = each.end;
        file.tensors.push_back(std::move(each.tensor));
    }
    if (at != size)
        fail_file(path, "has values that no tensor owns, at its end");
    return file;
}

}  // namespace pw
