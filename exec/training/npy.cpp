#include "exec/training/npy.h"

#include "workloads/error.h"
#include "workloads/text/files.h"
#include "workloads/text/printable.h"

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace pw {

namespace {

constexpr const char* kWhatIsRead = "float32 arrays in C order are read: numpy.save(file, array.astype('<f4'))";
constexpr std::uint32_t kMostHeader = 1 << 20;
constexpr std::string_view kMagic = "\x93NUMPY";

// The contents of the header's dictionary.
struct Header {
    std::string type;
    bool is_fortran = false;
    std::vector<int> shape;
};

// Reads the tokens of a Python literal.
class Reader {
public:
    explicit Reader(std::string_view text) : text_(text) {}

    bool takes(std::string_view token) {
        const std::size_t start = text_.find_first_not_of(" \n");
        text_.remove_prefix(start == std::string_view::npos ? text_.size() : start);
        if (!text_.starts_with(token))
            return false;
        text_.remove_prefix(token.size());
        return true;
    }

    std::optional<std::string> quoted() {
        for (const char quote : {'\'', '"'})
            if (takes({&quote, 1})) {
                const std::size_t end = text_.find(quote);
                if (end == std::string_view::npos)
                    return {};
                std::string text(text_.substr(0, end));
                text_.remove_prefix(end + 1);
                return text;
            }
        return {};
    }

    std::optional<int> integer() {
        takes("");
        int value = 0;
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
        if (error != std::errc() || value < 0)
            return {};
        text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
        return value;
    }

    bool is_at_end() {
        takes("");
        return text_.empty();
    }

private:
    std::string_view text_;
};

std::optional<std::vector<int>> read_tuple(Reader& reader) {
    std::vector<int> values;
    if (!reader.takes("("))
        return {};
    while (!reader.takes(")")) {
        if (!values.empty() && !reader.takes(","))
            return {};
        if (!values.empty() && reader.takes(")"))
            return values;
        const std::optional<int> value = reader.integer();
        if (!value)
            return {};
        values.push_back(*value);
    }
    return values;
}

// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } in any order.
std::optional<Header> read_dictionary(std::string_view text) {
    Reader reader(text);
    Header header;
    std::set<std::string> found;
    if (!reader.takes("{"))
        return {};
    while (!reader.takes("}")) {
        const std::optional<std::string> key = reader.quoted();
        if (!key || !reader.takes(":") || !found.insert(*key).second)
            return {};
        if (*key == "descr") {
            header.type = reader.quoted().value_or("a structure");
            if (header.type == "a structure")
                return header;
        } else if (*key == "fortran_order") {
            header.is_fortran = reader.takes("True");
            if (!header.is_fortran && !reader.takes("False"))
                return {};
        } else if (*key == "shape") {
            const std::optional<std::vector<int>> shape = read_tuple(reader);
            if (!shape)
                return {};
            header.shape = *shape;
        } else {
            return {};
        }
        reader.takes(",");
    }
    return found.size() == 3 && reader.is_at_end() ? std::optional(header) : std::nullopt;
}

[[noreturn]] void reject(const std::string& file, const std::string& fact) {
    fail("{}: {}\n  help: {}", file, fact, kWhatIsRead);
}

// Afterwards the stream is at the values.
Header read_header(std::istream& in, const std::string& file) {
    char start[10] = {};
    in.read(start, sizeof start);
    if (!in || std::string_view(start, kMagic.size()) != kMagic)
        reject(file, "not a .npy file");
    const auto byte = [](char value) { return static_cast<std::uint32_t>(static_cast<unsigned char>(value)); };
    const int version = start[6];
    if (version < 1 || version > 3)
        reject(file, fmt::format("version {} of the .npy format", version));
    std::uint32_t length = byte(start[8]) | byte(start[9]) << 8;
    if (version > 1) {
        char more[2] = {};
        in.read(more, sizeof more);
        length |= byte(more[0]) << 16 | byte(more[1]) << 24;
    }
    if (!in || length > std::filesystem::file_size(file))
        reject(file, "its header is cut off");
    if (length > kMostHeader)
        reject(file, fmt::format("its header has {} bytes", length));
    std::string text(length, ' ');
    in.read(text.data(), length);
    const std::optional<Header> header = in ? read_dictionary(text) : std::nullopt;
    if (!header)
        reject(file, "its header is not one that NumPy writes");
    if (header->type != "<f4")
        reject(file, fmt::format("it holds '{}', not '<f4'", shortened(header->type, 80)));
    if (header->is_fortran)
        reject(file, "it is in Fortran order");
    return *header;
}

}  // namespace

void write_npy(const std::string& file, const std::vector<int>& shape, const std::vector<float>& values) {
    std::string dims;
    for (const int size : shape)
        dims += fmt::format("{}, ", size);
    std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims);
    constexpr std::size_t kPrefix = 10, kAlign = 64;  // magic, version and length come before the header
    header.append((kAlign - (kPrefix + header.size() + 1) % kAlign) % kAlign, ' ');
    header += '\n';
    const auto length = static_cast<std::uint16_t>(header.size());
    const char version_and_length[] = {1, 0, static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
    NewFile out(file);
    out.write(kMagic);
    out.write({version_and_length, sizeof version_and_length});
    out.write(header);
    out.write({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    out.finish();
}

std::vector<int> read_npy_shape(const std::string& file) {
    std::ifstream in = open_file(file, kWhatIsRead);
    return read_header(in, file).shape;
}

std::vector<float> read_npy(const std::string& file) {
    std::ifstream in = open_file(file, kWhatIsRead);
    const Header header = read_header(in, file);
    const std::uintmax_t held = std::filesystem::file_size(file) - static_cast<std::uintmax_t>(in.tellg());
    std::uintmax_t values = 1;
    for (const int size : header.shape)
        values = size > 0 && values > held ? held + 1 : values * static_cast<std::uintmax_t>(size);
    if (values * sizeof(float) != held)
        reject(file, fmt::format("{} bytes follow its header, not 4 for each value of its shape", held));
    std::vector<float> read(values);
    in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(held));
    if (!in)
        fail("cannot read {}", file);
    return read;
}

}  // namespace pw
