// Whatever happens to a checkpoint, it is read as it was written, or the previous one is.
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/safetensors.h"
#include "tests/support/dice.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace {

// A fault in the system calls that write: the call that is due fails, or ends the process.
struct Fault {
    int due = -1;   // the number of calls before it; negative: no fault
    int error = 0;  // 0: the process ends before the call
};
Fault fault;
int calls = 0;

bool strikes() {
    ++calls;
    if (fault.due < 0 || fault.due-- > 0)
        return false;
    if (fault.error == 0)
        _exit(9);
    errno = fault.error;
    return true;
}

}  // namespace

extern "C" {
ssize_t write(int file, const void* bytes, size_t count) {
    return file > 2 && strikes() ? -1 : syscall(SYS_write, file, bytes, count);
}
int fsync(int file) { return strikes() ? -1 : static_cast<int>(syscall(SYS_fsync, file)); }
int rename(const char* from, const char* to) noexcept {
    return strikes() ? -1 : static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* name) noexcept {
    return strikes() ? -1 : static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, 0));
}
int rmdir(const char* name) noexcept {
    return strikes() ? -1 : static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR));
}
}

namespace pw {

namespace {

namespace fs = std::filesystem;

Checkpoint checkpoint_of(int step, int values = 5000) {
    Checkpoint checkpoint;
    checkpoint.step = step;
    checkpoint.samples = step * 8;
    checkpoint.updates = step * 2;
    checkpoint.optimizer = OptimizerKind::AdamW;
    checkpoint.seed = 1;
    checkpoint.model = "mlp";
    checkpoint.config = "workload: {model: mlp}\n";
    checkpoint.training = "0123456789abcdef";
    for (const std::string name : {"fc1.weight", "fc1.bias", "fc2.weight"}) {
        NamedTensor tensor{name, {values, 1}, {}};
        for (int k = 0; k < values; ++k)
            tensor.values.push_back(static_cast<float>(k) + static_cast<float>(step) / 16);
        checkpoint.parameters.push_back(tensor);
        checkpoint.states.push_back(std::move(tensor));
    }
    return checkpoint;
}

void expect_equal(const Checkpoint& one, const Checkpoint& other) {
    EXPECT_EQ(one.step, other.step);
    EXPECT_EQ(one.samples, other.samples);
    EXPECT_EQ(one.updates, other.updates);
    EXPECT_EQ(one.optimizer, other.optimizer);
    EXPECT_EQ(one.seed, other.seed);
    EXPECT_EQ(one.config, other.config);
    EXPECT_EQ(hash_of(one.parameters), hash_of(other.parameters));
    EXPECT_EQ(hash_of(one.states), hash_of(other.states));
}

std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}
void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

class Checkpoints : public testing::Test {
protected:
    std::string root() const { return (folder_.path() / "checkpoints").string(); }
    std::string folder(int step) const { return fmt::format("{}/step-{:08d}", root(), step); }

    // The latest complete one.
    FoundCheckpoint found() {
        left_out_.clear();
        return find_checkpoint(root(), left_out_);
    }
    void expect_step_before_is_taken() {
        EXPECT_EQ(found().checkpoint.step, 4);
        EXPECT_EQ(left_out_.size(), 1U);
        expect_equal(found().checkpoint, checkpoint_of(4, kSmall));
    }

    static constexpr int kSmall = 700;
    TemporaryFolder folder_;
    std::vector<std::string> left_out_;
};

TEST_F(Checkpoints, AreReadAsTheyWereWritten) {
    write_checkpoint(root(), checkpoint_of(4));
    write_checkpoint(root(), checkpoint_of(8));
    expect_equal(read_checkpoint(folder(4)), checkpoint_of(4));
    EXPECT_EQ(found().folder, folder(8));
    expect_equal(found().checkpoint, checkpoint_of(8));
    EXPECT_TRUE(left_out_.empty());
    write_checkpoint(root(), checkpoint_of(8));  // again
    expect_equal(found().checkpoint, checkpoint_of(8));
}

// Whenever the process ends, the checkpoint is complete, absent or renamed.
// They do not say which optimizer the states are of: there was one.
TEST_F(Checkpoints, OfOlderVersionsAreRead) {
    Checkpoint older = checkpoint_of(4);
    write_checkpoint(root(), older);
    const std::string model = folder(4) + "/model.safetensors", states = folder(4) + "/optimizer.safetensors";
    const Digest digests[] = {digest_of(model), write_tensors(states, older.states, {{"format", "pt"}})};
    write_text(folder(4) + "/complete",
               fmt::format("pipewright checkpoint 1, step 4\nmodel.safetensors {} bytes xxh3 {}\n"
                           "optimizer.safetensors {} bytes xxh3 {}\n",
                           digests[0].bytes, digests[0].hash, digests[1].bytes, digests[1].hash));
    older.optimizer = OptimizerKind::Sgd;
    older.updates = 4;
    expect_equal(read_checkpoint(folder(4)), older);
}

TEST_F(Checkpoints, AreNeverPartlyRemoved) {
    int kills = 0;
    for (int due = 0;; ++due) {
        write_checkpoint(root(), checkpoint_of(4, kSmall));
        write_checkpoint(root(), checkpoint_of(8, kSmall));
        const pid_t child = fork();
        if (child == 0) {
            fault = {due, 0};
            remove_checkpoint(folder(4));
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (fs::exists(folder(4)))
            expect_equal(read_checkpoint(folder(4)), checkpoint_of(4, kSmall));
        EXPECT_EQ(found().checkpoint.step, 8);
        write_checkpoint(root(), checkpoint_of(8, kSmall));  // removes the rest
        for (const auto& entry : fs::directory_iterator(root()))
            EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            break;
        ++kills;
    }
    EXPECT_FALSE(fs::exists(folder(4)));
    EXPECT_GT(kills, 4);
}

// Cut off at every byte of the header and every 4 KiB, and with each of its files missing.
TEST_F(Checkpoints, AreNotReadIfCutOff) {
    write_checkpoint(root(), checkpoint_of(4, kSmall));
    write_checkpoint(root(), checkpoint_of(8, kSmall));
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "complete"}) {
        const fs::path path = fs::path(folder(8)) / name;
        const std::string whole = read(path);
        std::uint64_t header = whole.size();
        if (std::string(name) != "complete") {
            std::memcpy(&header, whole.data(), sizeof header);
            header += sizeof header;
        }
        for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < header ? 1 : 4096) {
            fs::resize_file(path, bytes);
            expect_step_before_is_taken();
            if (HasFailure())
                return;
            write_text(path, whole);
        }
        fs::remove(path);
        expect_step_before_is_taken();
        write_text(path, whole);
    }
    EXPECT_EQ(found().checkpoint.step, 8);
}

TEST_F(Checkpoints, AreNotReadWithAFlippedBit) {
    write_checkpoint(root(), checkpoint_of(4, kSmall));
    write_checkpoint(root(), checkpoint_of(8, kSmall));
    Random random(7);
    for (int flip = 0; flip < rounds(500); ++flip) {
        const char* const names[] = {"model.safetensors", "optimizer.safetensors", "complete"};
        const fs::path path = fs::path(folder(8)) / names[flip % 3];
        std::string text = read(path);
        const auto at = static_cast<std::size_t>(pick(random, 0, static_cast<int>(text.size()) - 1));
        const auto bit = static_cast<char>(1 << pick(random, 0, 7));
        text[at] = static_cast<char>(text[at] ^ bit);
        write_text(path, text);
        expect_step_before_is_taken();
        ASSERT_FALSE(HasFailure()) << path << " byte " << at;
        text[at] = static_cast<char>(text[at] ^ bit);
        write_text(path, text);
    }
    EXPECT_EQ(found().checkpoint.step, 8);
}

// The disk is full at the n-th write, for all n.
TEST_F(Checkpoints, AreNotLostWhenTheDiskIsFull) {
    write_checkpoint(root(), checkpoint_of(4, kSmall));
    int failed = 0;
    for (int due = 0;; ++due) {
        fault = {due, ENOSPC};
        bool is_written = true;
        try {
            write_checkpoint(root(), checkpoint_of(8, kSmall));
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::RunFailed);
            is_written = false;
            ++failed;
        }
        const bool struck = fault.due < 0;
        fault = {};
        const int step = found().checkpoint.step;
        EXPECT_TRUE(step == 4 || step == 8);
        EXPECT_TRUE(step == 8 || !is_written);
        expect_equal(found().checkpoint, checkpoint_of(step, kSmall));
        fs::remove_all(folder(8));
        if (!struck)
            break;
    }
    EXPECT_GT(failed, 8);
}

// The process ends before the n-th call, for all n. The calls are writes, syncs and renames, so that one case is
// between the folder's rename and the marker.
TEST_F(Checkpoints, AreNotLostWhenTheProcessIsKilled) {
    write_checkpoint(root(), checkpoint_of(4, kSmall));
    int kills = 0;
    for (int due = 0;; ++due) {
        const pid_t child = fork();
        if (child == 0) {
            fault = {due, 0};
            write_checkpoint(root(), checkpoint_of(8, kSmall));
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        const int step = found().checkpoint.step;
        expect_equal(found().checkpoint, checkpoint_of(step, kSmall));
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            EXPECT_EQ(step, 8);
            break;
        }
        ++kills;
        EXPECT_TRUE(step == 4 || step == 8);
        write_checkpoint(root(), checkpoint_of(8, kSmall));  // the next process can write it
        EXPECT_EQ(found().checkpoint.step, 8);
        fs::remove_all(folder(8));
    }
    EXPECT_GT(kills, 8);
}

TEST_F(Checkpoints, ThatAreMissingAreReported) {
    EXPECT_THROW(found(), Error);
    fs::create_directories(root());
    EXPECT_FALSE(is_checkpoint(root()));
    write_checkpoint(root(), checkpoint_of(4, 10));
    fs::resize_file(folder(4) + "/model.safetensors", 20);
    try {
        (void)found();
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::CheckFailed);
        EXPECT_NE(std::string(error.what()).find("has no complete checkpoint"), std::string::npos) << error.what();
    }
}

// Wrong headers are refused with an error that names the fault.
class Headers : public testing::Test {
protected:
    std::string file(const std::string& header, const std::string& values) const {
        const std::uint64_t length = header.size();
        write_text(path_, std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + values);
        return path_;
    }
    void expect(const std::string& header, const std::string& values, const std::string& fact) const {
        try {
            (void)read_tensors(file(header, values));
            ADD_FAILURE() << header.substr(0, 200);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::BadInput);
            EXPECT_NE(std::string(error.what()).find(fact), std::string::npos) << error.what();
            EXPECT_LT(std::strlen(error.what()), 1000u);
        }
    }

    const TemporaryFolder folder_;
    const std::string path_ = (folder_.path() / "lies.safetensors").string();
};

TEST_F(Headers, AreRefusedIfWrong) {
    const std::string four(16, 'x');
    for (const char* none : {"[]", "5", "null", R"([{"a": 5}])", R"([[1], 2])"})
        expect(none, "", "JSON object");
    expect("{", "", "not JSON");
    expect("\xff", "", "not JSON");
    for (const char* entry : {"5", "null", "[]", R"(["dtype"])"})
        expect(fmt::format(R"({{"a": {}}})", entry), "", "without dtype");
    expect(R"({"a": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}})", four, "type \"F16\"");
    expect(R"({"a": {"dtype": {}, "shape": [4], "data_offsets": [0, 8]}})", four, "type object");
    for (const char* shape : {"[-4]", "4", "null", "{}", R"({"a": 4})", "[4.0]", R"(["4"])", "[[4]]"})
        expect(fmt::format(R"({{"a": {{"dtype": "F32", "shape": {}, "data_offsets": [0, 16]}}}})", shape), four,
               "shape is not valid");
    expect(R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 16]}})", four, "shape");
    expect(R"({"a": {"dtype": "F32", "shape": [2147483647, 2147483647, 8], "data_offsets": [0, 16]}})", four, "larger");
    expect(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 32]}})", four, "do not fit");
    expect(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}})", four, "do not fit");
    expect(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": {"0": 0, "1": 16}}})", four, "without two");
    expect(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}})", four, "no tensor or two");
    expect(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", four, "at its end");
    write_text(path_, "12");
    EXPECT_THROW((void)read_tensors(path_), Error);
    const std::uint64_t huge = ~std::uint64_t{0};
    write_text(path_, std::string(reinterpret_cast<const char*>(&huge), sizeof huge));
    EXPECT_THROW((void)read_tensors(path_), Error);
}

TEST_F(Headers, AreRefusedIfAKeyIsListedTwice) {
    const std::string tensor = R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})", two(8, 'x');
    expect("{" + tensor + ", " + tensor + "}", two, "key \"a\" is listed twice");
    expect(R"({"a": {"dtype": "F32", "shape": [2], "shape": [2], "data_offsets": [0, 8]}})", two,
           "key \"shape\" is listed twice");
    expect(R"({"__metadata__": {"step": "1", "step": "2"}})", "", "key \"step\" is listed twice");
    expect(R"({"__metadata__": {}, "__metadata__": {}})", "", "is listed twice");
}

TEST_F(Headers, AreRefusedIfNestedTooDeep) {
    const auto deep = [](int depth, const std::string& open, const std::string& close) {
        std::string text;
        for (int level = 0; level < depth; ++level)
            text += open;
        for (int level = 0; level < depth; ++level)
            text += close;
        return text;
    };
    for (const std::string& value : {deep(200'000, "[", "]"), deep(200'000, R"({"a":)", "")})
        for (const char* header : {R"({{"a": {{"dtype": {}, "shape": [], "data_offsets": [0, 4]}}}})",
                                   R"({{"a": {{"dtype": "F32", "shape": {}, "data_offsets": [0, 4]}}}})",
                                   R"({{"a": {{"dtype": "F32", "shape": [], "data_offsets": {}}}}})", R"({{"a": {}}})",
                                   R"({{"__metadata__": {{"a": {}}}}})", R"({{"__metadata__": {}}})"})
            expect(fmt::format(fmt::runtime(header), value), "1234", "nest more than 64 deep");
}

// As many tensors as fit in ten megabytes. The time is linear in their number; quadratic, it would be minutes.
TEST_F(Headers, MayHaveManyTensors) {
    constexpr int kMany = 50'000;
    std::string header = "{";
    for (int k = 0; k < kMany; ++k)
        header += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", k == 0 ? "" : ",", k);
    const TensorFile read = read_tensors(file(header + "}", ""));
    EXPECT_EQ(read.tensors.size(), static_cast<std::size_t>(kMany));
    write_tensors(path_, read.tensors, {{"step", "1"}});
    EXPECT_EQ(read_tensors(path_).tensors.size(), static_cast<std::size_t>(kMany));
}

// Another program could have written such files, with a matching `complete`.
TEST_F(Checkpoints, AreRefusedIfTheirStepIsNotThatOfTheirName) {
    write_checkpoint(root(), checkpoint_of(2, 10));
    const auto with_step = [&](const std::string& step, const std::string& samples) {
        write_tensors(folder(2) + "/model.safetensors", checkpoint_of(2, 10).parameters,
                      {{"step", step}, {"samples", samples}, {"seed", "1"}});
        std::string text = "pipewright checkpoint 1, step 2\n";
        for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
            const Digest digest = digest_of(folder(2) + "/" + name);
            text += fmt::format("{} {} bytes xxh3 {}\n", name, digest.bytes, digest.hash);
        }
        write_text(folder(2) + "/complete", text);
    };
    with_step("2", "16");
    EXPECT_EQ(found().checkpoint.step, 2);
    EXPECT_EQ(found().checkpoint.training, "");  // as older versions wrote it
    for (const auto& [step, samples] :
         {std::pair("2junk", "16"), std::pair("-5", "16"), std::pair("1", "16"), std::pair("", "16"),
          std::pair("99999999999", "16"), std::pair(" 2", "16"), std::pair("2", "16 "), std::pair("2", "-16")}) {
        with_step(step, samples);
        try {
            (void)read_checkpoint(folder(2));
            ADD_FAILURE() << step << " " << samples;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::CheckFailed);
        }
    }
}

}  // namespace

}  // namespace pw
