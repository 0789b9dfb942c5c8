#include "workloads/text/gzip.h"

#include "workloads/error.h"
#include "workloads/units.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <streambuf>
#include <system_error>
#include <utility>

namespace pw {

namespace {

constexpr int kWindow = 15 + 16;  // of the largest size, with gzip's header
// Traces shrink to a thirtieth. A file that expands to more than this, and to many times its size, is an attack on
// memory.
constexpr std::uintmax_t kFreeSize = std::uintmax_t{64} << 20, kMostTimes = 200;

class Inflater {
public:
    using Refill = std::function<std::size_t(char* to, std::size_t most)>;
    Inflater(Refill refill, const std::string& path, std::string_view help, std::uintmax_t most)
        : refill_(std::move(refill)), path_(path), help_(help), most_(most) {
        if (inflateInit2(&stream_, kWindow) != Z_OK)
            throw std::bad_alloc();
    }
    ~Inflater() { inflateEnd(&stream_); }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;

    // Returns how many bytes were written to `to`, 0 at the end.
    std::size_t read(char* to, std::size_t size) {
        stream_.next_out = reinterpret_cast<Bytef*>(to);
        stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, 1 << 30));
        const std::size_t before = stream_.avail_out;
        while (stream_.avail_out == before && refilled()) {
            const int result = inflate(&stream_, Z_NO_FLUSH);
            if (result == Z_STREAM_END) {
                is_between_ = true;
                if (inflateReset(&stream_) != Z_OK)  // another may follow
                    throw std::bad_alloc();
            } else if (result == Z_MEM_ERROR) {
                throw std::bad_alloc();
            } else if (result != Z_OK && result != Z_BUF_ERROR) {
                reject(stream_.msg != nullptr ? stream_.msg : "no gzip data");
            } else {
                is_between_ = false;
            }
        }
        const std::size_t got = before - stream_.avail_out;
        check_size(held_ += got);
        return got;
    }

private:
    bool refilled() {
        if (stream_.avail_in > 0)
            return true;
        const std::size_t got = refill_(input_.data(), input_.size());
        taken_ += got;
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(got);
        if (got == 0 && !is_between_)
            reject("the file ends in the middle");
        return got > 0;
    }
    void check_size(std::uintmax_t held) const {
        if (held > most_)
            fail("'{}' holds more than {}, more than is read\n  help: {}", path_,
                 exact_bytes(static_cast<Bytes>(most_)), help_);
        if (held > kFreeSize && held / kMostTimes > taken_)
            fail("'{}' holds more than {} times its size, which no trace or config does\n  help: {}", path_, kMostTimes,
                 help_);
    }
    [[noreturn]] void reject(std::string_view what) const {
        fail("'{}' cannot be decompressed at byte {}: {}\n  help: write or copy it anew; `gzip -t` tests it", path_,
             taken_ - stream_.avail_in, what);
    }

    const Refill refill_;
    const std::string path_, help_;
    const std::uintmax_t most_;
    std::uintmax_t taken_ = 0, held_ = 0;  // bytes of the file, and of what it holds
    bool is_between_ = false;              // gzip's members, one of which has ended
    z_stream stream_{};
    std::array<char, 1 << 16> input_;
};

class InflatingBuffer : public std::streambuf {
public:
    InflatingBuffer(std::ifstream file, const std::string& path, std::string_view help, std::uintmax_t most)
        : file_(std::move(file)),
          inflater_([this](char* to, std::size_t size) { return taken(to, size); }, path, help, most) {}

protected:
    int_type underflow() override {
        const std::size_t got = inflater_.read(output_.data(), output_.size());
        setg(output_.data(), output_.data(), output_.data() + got);
        return got == 0 ? traits_type::eof() : traits_type::to_int_type(output_.front());
    }

private:
    std::size_t taken(char* to, std::size_t size) {
        file_.read(to, static_cast<std::streamsize>(size));
        return static_cast<std::size_t>(file_.gcount());
    }

    std::ifstream file_;
    Inflater inflater_;
    std::array<char, 1 << 16> output_;
};

class InflatingStream : public std::istream {
public:
    template <class... Args>
    explicit InflatingStream(Args&&... args) : std::istream(nullptr), buffer_(std::forward<Args>(args)...) {
        rdbuf(&buffer_);
        exceptions(std::ios::badbit);  // what the buffer throws
    }

private:
    InflatingBuffer buffer_;
};

}  // namespace

bool is_gzip(std::string_view text) { return text.starts_with("\x1f\x8b"); }

std::string gunzip(std::string_view compressed, const std::string& path, std::string_view help, std::uintmax_t most) {
    const auto refill = [&](char* to, std::size_t size) {
        const std::size_t got = compressed.copy(to, size);
        compressed.remove_prefix(got);
        return got;
    };
    Inflater inflater(refill, path, help, most);
    std::string text;
    std::array<char, 1 << 16> piece;
    while (const std::size_t got = inflater.read(piece.data(), piece.size()))
        text.append(piece.data(), got);
    return text;
}

std::unique_ptr<std::istream> open_text(const std::string& path, std::string_view help, std::uintmax_t most) {
    std::ifstream file = open_file(path, help, most);
    std::array<char, 2> first{};
    file.read(first.data(), first.size());
    const bool compressed = file && is_gzip({first.data(), first.size()});
    file.clear();
    file.seekg(0);
    if (compressed)
        return std::make_unique<InflatingStream>(std::move(file), path, help, most);
    return std::make_unique<std::ifstream>(std::move(file));
}

std::string beginning_of(const std::string& path) {
    constexpr std::size_t kEnough = 1 << 16;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored))
        return "";
    std::string text(kEnough, '\0');
    const std::unique_ptr<std::istream> file = open_text(path, "name another file", kMostTrace);
    file->read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file->gcount()));
    const std::size_t blanks = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    if (blanks == text.size() || static_cast<unsigned char>(text[blanks]) >= ' ')
        text.erase(0, blanks);
    return text;
}

struct GzipWriter::State {
    std::function<void(std::string_view)> write;
    z_stream stream{};
    std::array<char, 1 << 16> output;

    void run(int flush) {
        do {
            stream.next_out = reinterpret_cast<Bytef*>(output.data());
            stream.avail_out = static_cast<uInt>(output.size());
            deflate(&stream, flush);  // fails on wrong arguments only
            write({output.data(), output.size() - stream.avail_out});
        } while (stream.avail_out == 0);
    }
};

GzipWriter::GzipWriter(std::function<void(std::string_view)> write) : state_(std::make_unique<State>()) {
    state_->write = std::move(write);
    if (deflateInit2(&state_->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::bad_alloc();
}

GzipWriter::~GzipWriter() { deflateEnd(&state_->stream); }

void GzipWriter::write(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t size = std::min<std::size_t>(bytes.size(), 1 << 30);
        state_->stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
        state_->stream.avail_in = static_cast<uInt>(size);
        state_->run(Z_NO_FLUSH);
        bytes.remove_prefix(size);
    }
}

void GzipWriter::finish() { state_->run(Z_FINISH); }

}  // namespace pw
