// Files that gzip has compressed (RFC 1952). They are recognised by their first bytes, and written where a name ends in
// ".gz".
#pragma once

#include "workloads/text/files.h"

#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <string>
#include <string_view>

namespace pw {

bool is_gzip(std::string_view text);  // the first bytes are gzip's
inline bool is_gzip_name(std::string_view path) { return path.ends_with(".gz"); }

// Returns the decompressed text of a file. Throws Error (BadInput) with the file, the byte and `help` if it is not
// complete and valid gzip, if it has more than `most` bytes, or if a small file expands more than any text of ours.
std::string gunzip(std::string_view compressed, const std::string& path, std::string_view help, std::uintmax_t most);

// Opens a regular file, compressed or not, whose text is read piece by piece and has at most `most` bytes. Throws as
// read_text does, and for compressed files as gunzip does, also while it is read from its buffer.
std::unique_ptr<std::istream> open_text(const std::string& path, std::string_view help, std::uintmax_t most);

// Returns the first 64 KiB of the text of a regular file, of a text without the blanks before it: binary files may
// begin with such bytes. Empty for a pipe, which can be read only once and may never end. Throws as open_text does.
std::string beginning_of(const std::string& path);

// Compresses the text that is written. The same text gives the same bytes.
class GzipWriter {
public:
    explicit GzipWriter(std::function<void(std::string_view)> write);
    ~GzipWriter();
    GzipWriter(const GzipWriter&) = delete;
    GzipWriter& operator=(const GzipWriter&) = delete;
    void write(std::string_view bytes);
    void finish();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace pw
