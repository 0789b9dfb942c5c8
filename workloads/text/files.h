// Files, read with bounds and written completely or not at all: no reader hangs on a pipe or exceeds its bound, and a
// full disk never leaves half a file under its name.
#pragma once

#include "workloads/text/drafts.h"
#include "workloads/units.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace pw {

class GzipWriter;

inline constexpr std::uintmax_t kMostText = std::uintmax_t{64} << 20;   // bytes of a config, plan, profile or instance
inline constexpr std::uintmax_t kMostTrace = std::uintmax_t{4} << 30;   // bytes of a trace: some eight million tasks
inline constexpr std::uintmax_t kMostTokens = std::uintmax_t{1} << 30;  // bytes of a data set of text

// Returns the text of a regular file, or of an open one: /dev/stdin and /dev/fd/N may be pipes. Files compressed with
// gzip are decompressed. Throws Error (BadInput) with the path, its type or why it cannot be read, and `help`.
std::string read_text(const std::string& path, std::string_view help, std::uintmax_t most = kMostText);

// Opens a regular file of at most `most` bytes, to be read piece by piece. Throws as read_text does.
std::ifstream open_file(const std::string& path, std::string_view help,
                        std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max());

// A new file is written as a draft in the same folder and renamed when it is on the disk. A path that is not a regular
// file (/dev/null, a pipe) is written directly. A file whose name ends in ".gz" is compressed. All functions throw
// Error (RunFailed) naming the path.
class NewFile {
public:
    explicit NewFile(std::string path);
    ~NewFile();  // removes an unfinished draft
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    // From here on writes bypass the system's page cache, if the file system supports that: for large files that are
    // not read soon, whose copy in the cache would cost most of the time.
    void bypass_cache();
    void write(std::string_view bytes);
    void finish();

private:
    void write_plain(std::string_view bytes);
    void flush();
    bool set_direct(bool direct);
    [[noreturn]] void fail_to_write() const;

    std::string path_, target_;  // the path as given, and with its links followed
    std::string draft_;          // empty when it is the target itself
    struct Free {
        void operator()(char* memory) const { std::free(memory); }
    };
    std::unique_ptr<char, Free> buffer_;
    std::unique_ptr<GzipWriter> gzip_;
    std::size_t buffered_ = 0;  // bytes
    bool is_direct_ = false;
    int descriptor_ = -1;
};

void write_file(const std::string& path, std::string_view text);

void sync_folder(const std::string& folder);  // the names in it reach the disk
// Makes a folder and its missing parents, each of which reaches the disk. Returns whether it made the folder.
bool make_folder(const std::string& path, std::error_code& error);

// A new folder's files appear all together: the folder is written as a draft and renamed at the end. If the folder
// exists, the files are moved into it once all are written, by one process at a time. Its other files stay.
class NewFolder {
public:
    explicit NewFolder(std::string path);

    const std::string& draft() const { return draft_->path(); }  // where to write
    // Calls `write` with the draft. Errors of `write` name the folder.
    void fill(const std::function<void(const std::string& draft)>& write) const { draft_->fill(write); }
    void finish();

private:
    bool is_renamed() const;
    void move_files();

    std::string path_;
    std::optional<DraftFolder> draft_;  // removes itself if it is not finished
    bool fresh_;
};

// Returns whether the last change of a folder was interrupted while its files were moved: they may be of two runs.
bool is_half_moved(const std::string& folder);

// Returns a text that is the same for all paths of one file or folder, through links, too, and whether it exists or
// not. It is empty for an empty path, and for a pipe or a device, which no file replaces.
std::string place_of(const std::string& path);

// These check, before long work, that a file or a folder of that name can be written, and throw Error (RunFailed) with
// the reason if not. An empty path means no file.
void check_target_file(const std::string& path);
void check_target_folder(const std::string& path);

}  // namespace pw
