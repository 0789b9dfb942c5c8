// Files are read within bounds and written completely or not at all.
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/process.h"
#include "workloads/text/drafts.h"
#include "workloads/text/files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pw {
namespace {

namespace fs = std::filesystem;

// Limits the files of this process to this many bytes, which has the effect of a full disk.
class FullDisk {
public:
    explicit FullDisk(rlim_t bytes) {
        std::signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit less{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &less);
    }
    ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

private:
    rlimit before_{};
};

std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        names.push_back(entry.path().lexically_relative(folder).string());
    std::sort(names.begin(), names.end());
    return names;
}

template <class Use>
std::string write_failure(Use use) {
    try {
        use();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::RunFailed);
        return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
}

TEST(ReadText, ReadsAFileToItsLastByte) {
    const TemporaryFolder folder;
    std::string text(200'000, 'x');
    text[150'000] = '\0';
    EXPECT_EQ(read_text(folder.write("text", text), ""), text);
    EXPECT_EQ(read_text(folder.write("empty", ""), ""), "");
}

TEST(ReadText, RefusesMoreThanItsLimit) {
    const TemporaryFolder folder;
    const std::string path = folder.write("text", std::string(1025, 'x'));
    expect_says(refusal([&] { read_text(path, "write less", 1024); }), {path, "larger than 1 KiB", "help: write less"});
    EXPECT_EQ(read_text(path, "", 1025).size(), 1025u);
    fs::resize_file(path, kMostText + 1);  // sparse
    expect_says(refusal([&] { read_text(path, ""); }), {"larger than 64 MiB"});
    expect_says(refusal([&] { open_file(path, "write less", 1024); }), {path, "larger than 1 KiB"});
}

// Opening a pipe without a writer would wait forever.
TEST(ReadText, RefusesWhatIsNoFileInsteadOfWaiting) {
    const TemporaryFolder folder;
    const std::string pipe = (folder.path() / "pipe").string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    for (const auto& read : {+[](const std::string& path) { read_text(path, "name a file"); },
                             +[](const std::string& path) { open_file(path, "name a file"); }}) {
        expect_says(refusal([&] { read(pipe); }), {pipe, "is a pipe, not a file", "help: name a file"});
        expect_says(refusal([&] { read(folder.path().string()); }), {"is a folder, not a file"});
        expect_says(refusal([&] { read("/dev/zero"); }), {"'/dev/zero' is a device, not a file"});
        expect_says(refusal([&] { read("/nowhere/at/all"); }), {"cannot read '/nowhere/at/all': No such file"});
    }
}

TEST(NewFile, ReplacesAFileAtOnceAndKeepsItsMode) {
    const TemporaryFolder folder;
    const std::string path = folder.write("result", "old");
    fs::permissions(path, fs::perms{0640});
    {
        NewFile file(path);
        file.write("new");
        EXPECT_EQ(contents(path), "old");
        file.finish();
    }
    EXPECT_EQ(contents(path), "new");
    EXPECT_EQ(fs::status(path).permissions(), fs::perms{0640});
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"result"});
}

// Whole blocks bypass the cache if the file system allows it, the rest does not; on a disk and in memory.
TEST(NewFile, PastTheCacheIsTheSameFile) {
    for (const fs::path& home : {fs::temp_directory_path(), fs::path("/dev/shm")}) {
        if (access(home.c_str(), W_OK) != 0)
            continue;
        const TemporaryFolder folder(home);
        const std::string path = (folder.path() / "result").string();
        for (const std::size_t bytes : {0, 1, 4095, 4096, 1 << 20, (1 << 20) + 1, (3 << 20) + 4096, (5 << 20) - 3}) {
            std::string text(bytes, ' ');
            for (std::size_t at = 0; at < bytes; ++at)
                text[at] = static_cast<char>(at * 2654435761u >> 13);
            NewFile file(path);
            file.write(text.substr(0, bytes / 3));
            file.bypass_cache();
            file.write(text.substr(bytes / 3));
            file.finish();
            EXPECT_EQ(contents(path), text) << bytes << " bytes in " << home;
        }
    }
}

TEST(NewFile, PastTheCacheAFullDiskIsReported) {
    const TemporaryFolder folder;
    const std::string path = folder.write("result", "old");
    for (const rlim_t room : {rlim_t{1} << 20, (rlim_t{1} << 20) + 5000}) {
        const FullDisk disk(room);
        const std::string said = write_failure([&] {
            NewFile file(path);
            file.bypass_cache();
            file.write(std::string(3 << 20, 'x'));
            file.finish();
        });
        EXPECT_NE(said.find(path), std::string::npos) << said;
        EXPECT_EQ(contents(path), "old");
    }
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"result"});
}

TEST(NewFile, UnfinishedLeavesTheOldFileAndNothingElse) {
    const TemporaryFolder folder;
    const std::string path = folder.write("result", "old");
    NewFile(path).write(std::string(3 << 20, 'x'));
    EXPECT_EQ(contents(path), "old");
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"result"});
}

TEST(NewFile, AFullDiskLeavesTheOldFileAndNothingElse) {
    const TemporaryFolder folder;
    const std::string path = folder.write("result", "old");
    const FullDisk full(1000);
    expect_says(write_failure([&] { write_file(path, std::string(1001, 'x')); }), {path, "File too large"});
    expect_says(write_failure([&] { write_file((folder.path() / "other").string(), std::string(1001, 'x')); }),
                {"other"});
    EXPECT_EQ(contents(path), "old");
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"result"});
    write_file(path, std::string(1000, 'x'));
    EXPECT_EQ(contents(path).size(), 1000u);
}

// Returns the number of a process that has ended.
pid_t dead_process() {
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, nullptr, 0);
    return child;
}

TEST(Drafts, OfDeadProcessesOfThisHostGo) {
    const TemporaryFolder folder;
    const auto draft = [](const std::string& host, pid_t process, int number = 0) {
        return fmt::format(".pipewright-{}-{}-{}", host, process, number);
    };
    const pid_t dead = dead_process();
    const std::string own = host_name();
    folder.write("outside", "kept");
    std::vector<std::string> stay = {draft(own, getppid()),
                                     draft("another", dead),
                                     draft(own + "-x", dead),
                                     draft(own, dead) + "x",
                                     fmt::format(".pipewright-{}-0", dead),
                                     ".pipewright-moving",
                                     "result"};
    for (const std::string& name : stay)
        folder.write(name, "kept");
    for (const int number : {0, 1})
        folder.write(draft(own, dead, number), "half");
    fs::create_directories(folder.path() / draft(own, dead, 2) / "deep");
    folder.write(draft(own, dead, 2) + "/deep/file", "half");
    fs::create_symlink(folder.path() / "outside", folder.path() / draft(own, dead, 3));
    write_file((folder.path() / "result").string(), "new");
    stay.insert(stay.end(), {"outside", draft(own, dead, 3)});
    std::sort(stay.begin(), stay.end());
    EXPECT_EQ(names_in(folder.path()), stay);
    EXPECT_EQ(contents(folder.path() / "outside"), "kept");
    // of a process whose parent has not asked for it
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    folder.write(draft(own, child), "half");
    remove_dead_drafts(folder.path().string());
    EXPECT_FALSE(fs::exists(folder.path() / draft(own, child)));
    waitpid(child, nullptr, 0);
    // into a folder that is new, which is written next to its name
    folder.write(draft(own, dead), "half");
    NewFolder((folder.path() / "fresh").string()).finish();
    EXPECT_FALSE(fs::exists(folder.path() / draft(own, dead)));
}

// Two containers may have one host's name, and numbers of their own.
TEST(Drafts, ThatAreHeldStay) {
    const TemporaryFolder folder;
    const std::string name = fmt::format(".pipewright-{}-{}-0", host_name(), dead_process());
    const int held = open(folder.write(name, "").c_str(), O_RDWR);
    hold_draft(held);
    remove_dead_drafts(folder.path().string());
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{name});
    close(held);
    remove_dead_drafts(folder.path().string());
    EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(NewFile, WritesDevicesAsTheyAre) {
    write_file("/dev/null", "text");
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
    expect_says(write_failure([] { write_file("/dev/full", "text"); }), {"'/dev/full'", "No space left"});
    EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(NewFile, KeepsLinksToIt) {
    const TemporaryFolder folder;
    fs::create_directory(folder.path() / "inner");
    fs::create_symlink("inner/result", folder.path() / "link");
    for (const char* text : {"first", "second"}) {
        write_file((folder.path() / "link").string(), text);
        EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
        EXPECT_EQ(contents(folder.path() / "inner" / "result"), text);
    }
}

TEST(Target, IsRefusedBeforeTheWorkWithTheReason) {
    const TemporaryFolder folder;
    const std::string inside = (folder.path() / "no" / "file").string(), file = folder.write("file", "");
    expect_says(write_failure([&] { check_target_file(inside); }), {inside, "there is no folder"});
    expect_says(write_failure([&] { check_target_file(file + "/x"); }), {file + "/x", "is no folder"});
    expect_says(write_failure([&] { check_target_file(folder.path().string()); }), {"it is a folder"});
    expect_says(write_failure([&] { check_target_folder(file); }), {file, "is no folder"});
    expect_says(write_failure([&] { check_target_folder(file + "/x/y"); }), {"is no folder"});
    check_target_file("");
    check_target_file(file);
    check_target_file("/dev/stdout");
    check_target_folder("");
    check_target_folder(inside);
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"file"});
}

void write_both(const std::string& folder, const std::string& text) {
    NewFolder fresh(folder);
    fs::create_directory(fs::path(fresh.draft()) / "deep");
    write_file(fresh.draft() + "/a", text);
    write_file(fresh.draft() + "/deep/b", text);
    fresh.finish();
}

TEST(NewFolder, AppearsAsAWhole) {
    const TemporaryFolder folder;
    const fs::path target = folder.path() / "new" / "result";
    {
        NewFolder fresh(target.string());
        write_file(fresh.draft() + "/a", "text");
        EXPECT_FALSE(fs::exists(target));
    }
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"new"});
    write_both(target.string() + "/", "text");
    EXPECT_EQ(names_in(target), (std::vector<std::string>{"a", "deep", "deep/b"}));
    EXPECT_EQ(names_in(target.parent_path()).front(), "result");
}

TEST(NewFolder, ReplacesItsFilesAndKeepsTheOthers) {
    const TemporaryFolder folder;
    folder.write("notes.txt", "kept");
    for (const char* text : {"first", "second"}) {
        write_both(folder.path().string(), text);
        EXPECT_EQ(contents(folder.path() / "a"), text);
        EXPECT_EQ(contents(folder.path() / "deep" / "b"), text);
    }
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"a", "deep", "deep/b", "notes.txt"}));
    EXPECT_EQ(contents(folder.path() / "notes.txt"), "kept");
}

TEST(NewFolder, AFullDiskLeavesTheOldFiles) {
    const TemporaryFolder folder;
    write_both(folder.path().string(), "old");
    const FullDisk full(1000);
    write_failure([&] {
        NewFolder fresh(folder.path().string());
        write_file(fresh.draft() + "/a", "new");
        write_file(fresh.draft() + "/deep", std::string(2000, 'x'));
        fresh.finish();
    });
    EXPECT_EQ(contents(folder.path() / "a"), "old");
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"a", "deep", "deep/b"}));
}

// A directory where a file has to go: the files moved before it are new, the others old.
TEST(NewFolder, AnInterruptedOneIsRecognisedUntilTheNextCompleteOne) {
    const TemporaryFolder folder;
    fs::create_directories(folder.path() / "a" / "in the way");
    write_failure([&] { write_both(folder.path().string(), "new"); });
    EXPECT_TRUE(is_half_moved(folder.path().string()));
    fs::remove_all(folder.path() / "a");
    write_both(folder.path().string(), "new");
    EXPECT_FALSE(is_half_moved(folder.path().string()));
}

// Two processes may save into one folder at once: each writes all of its files, and the last one's stay.
TEST(NewFolder, TwoAtOnceLeaveTheFilesOfOne) {
    const TemporaryFolder folder;
    const std::string target = (folder.path() / "new").string();
    NewFolder first(target), second(target);
    for (const auto& [fresh, text] : {std::pair(&first, "first"), std::pair(&second, "second")}) {
        write_file(fresh->draft() + "/a", text);
        write_file(fresh->draft() + "/b", text);
    }
    first.finish();
    second.finish();
    EXPECT_EQ(contents(target + "/a") + " " + contents(target + "/b"), "second second");
    EXPECT_FALSE(is_half_moved(target));
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"new", "new/a", "new/b"}));
}

TEST(NewFolder, WaitsForAnotherThatMovesItsFiles) {
    const TemporaryFolder folder;
    write_both(folder.path().string(), "old");
    const int lock = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(flock(lock, LOCK_EX), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(lock);  // its copy would hold the lock, too
        write_both(folder.path().string(), "new");
        _exit(0);
    }
    while (names_in(folder.path()).size() < 5)  // until its draft is there
        usleep(1000);
    usleep(50'000);
    EXPECT_EQ(contents(folder.path() / "a"), "old");
    close(lock);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(contents(folder.path() / "a"), "new");
}

TEST(MakeFolder, MakesThoseAboveIt) {
    const TemporaryFolder folder;
    std::error_code error;
    EXPECT_TRUE(make_folder((folder.path() / "a/b/c/").string(), error));
    EXPECT_TRUE(fs::is_directory(folder.path() / "a/b/c"));
    EXPECT_FALSE(make_folder((folder.path() / "a/b/c").string(), error));
    EXPECT_FALSE(error);
    folder.write("file", "");
    EXPECT_FALSE(make_folder((folder.path() / "file/d").string(), error));
    EXPECT_TRUE(error);
    std::string long_path = (folder.path() / "long").string();
    for (int level = 0; level < 3000; ++level)
        long_path += "/a";
    EXPECT_FALSE(make_folder(long_path, error));
    EXPECT_EQ(error, std::errc::filename_too_long);
    EXPECT_FALSE(fs::exists(folder.path() / "long"));
}

TEST(PlaceOf, IsTheSameForAllNamesOfAFile) {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    const std::string real = folder.write("real", "text");
    fs::create_symlink("real", root / "link");
    fs::create_hard_link(real, root / "hard");
    fs::create_directory(root / "in");
    fs::create_symlink("new", root / "to new");
    for (const fs::path& name : {root / "link", root / "hard", root / "in/../real"})
        EXPECT_EQ(place_of(name.string()), place_of(real)) << name;
    EXPECT_EQ(place_of((root / "new").string()), place_of((root / "in/.././new").string()));
    EXPECT_EQ(place_of((root / "new").string()), place_of((root / "to new").string()));
    EXPECT_EQ(place_of((root / "in").string()), place_of((root / "in/").string()));
    EXPECT_NE(place_of((root / "new").string()), place_of((root / "other").string()));
    EXPECT_EQ(place_of("/dev/null"), "");
    EXPECT_EQ(place_of(""), "");
}

// As the kernel refuses it to shells in such folders.
TEST(NewFile, FollowsNoLinkOfAStrangerInAFolderOfAll) {
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can make another user's link";
    const TemporaryFolder folder, home;
    const std::string mine = home.write("mine", "kept"), link = (folder.path() / "link").string();
    fs::create_symlink(mine, link);
    ASSERT_EQ(lchown(link.c_str(), 4711, 4711), 0);
    ASSERT_EQ(chmod(folder.path().c_str(), 01777), 0);
    expect_says(write_failure([&] { write_file(link, "new"); }), {link, "another user's link"});
    expect_says(write_failure([&] { check_target_folder(link); }), {"another user's link"});
    EXPECT_EQ(contents(mine), "kept");
    ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
    write_file(link, "new");
    EXPECT_EQ(contents(mine), "new");
}

TEST(NewFile, NamesItselfOnOneLine) {
    const std::string message = write_failure([] { write_file("/nowhere/two\nlines", ""); });
    EXPECT_TRUE(contains(message, "'/nowhere/two\\x0alines'")) << message;
}

}  // namespace
}  // namespace pw
