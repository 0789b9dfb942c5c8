// A run writes only into a folder of its own training, while no other run does, and removes only checkpoints of
// this training.
#include "exec/checkpoint/checkpoint_folder.h"
#include "exec/checkpoint/checkpoint_writer.h"
#include "tests/support/temporary_folder.h"
#include "workloads/error.h"
#include "workloads/process.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace pw {

namespace {

namespace fs = std::filesystem;

Checkpoint small_checkpoint(int step) {
    Checkpoint checkpoint;
    checkpoint.step = step;
    checkpoint.samples = step * 8;
    checkpoint.seed = 1;
    checkpoint.model = "mlp";
    checkpoint.parameters = checkpoint.states = {{"fc1.weight", {2}, {static_cast<float>(step), 1}}};
    return checkpoint;
}

class Folder : public testing::Test {
protected:
    fs::path place(const std::string& name) const { return folder_.path() / name; }
    std::string root() const { return place("kept").string(); }

    // Returns the contents of every file, by its path.
    std::map<std::string, std::string> files() const {
        std::map<std::string, std::string> found;
        for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
            if (entry.is_regular_file() && entry.path().filename() != "pipewright.lock") {
                std::ostringstream text;
                text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
                found[entry.path().lexically_relative(folder_.path()).string()] = text.str();
            }
        return found;
    }
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(root()))
            names.push_back(entry.path().filename().string());
        std::ranges::sort(names);
        return names;
    }

    // Runs the steps of a training, with a checkpoint after each of them.
    void run(const std::vector<int>& steps, std::optional<FoundCheckpoint> from = {}, int keep = 2, int all = 100) {
        CheckpointFolder folder(root(), keep, all);
        folder.open(from ? &*from : nullptr);
        for (const int step : steps)
            folder.write(small_checkpoint(step));
    }
    FoundCheckpoint found(const std::string& path = {}) const {
        std::vector<std::string> left_out;
        return find_checkpoint(path.empty() ? root() : path, left_out);
    }
    // Returns the error, and checks that no file has changed.
    std::string refusal(std::optional<FoundCheckpoint> from = {}, int all = 100) {
        const auto before = files();
        std::string why;
        try {
            run({}, std::move(from), 2, all);
            ADD_FAILURE() << "it was not refused";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::BadInput);
            why = error.what();
        }
        EXPECT_EQ(files(), before);
        return why;
    }
    static bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

    TemporaryFolder folder_;
};

using Names = std::vector<std::string>;

TEST_F(Folder, HasTheLatestCheckpointsOfTheRun) {
    run({5, 10, 15, 20});
    EXPECT_EQ(names(), (Names{"step-00000015", "step-00000020"}));
    const std::string training = found().checkpoint.training;
    EXPECT_EQ(training.size(), 16u);
    run({25}, found());
    EXPECT_EQ(names(), (Names{"step-00000020", "step-00000025"}));
    EXPECT_EQ(found().checkpoint.training, training);
}

TEST_F(Folder, IsRefusedIfOfAnotherTraining) {
    run({10, 50});
    EXPECT_EQ(refusal(),
              fmt::format("'{0}' has checkpoints already: step-00000050, step-00000010\n  help: add --resume "
                          "{0}, or name another folder",
                          root()));
    fs::rename(root(), place("other"));
    run({20});
    const FoundCheckpoint other = found(place("other").string());
    EXPECT_TRUE(says(refusal(other), "has checkpoints already: step-00000020\n"));  // resumes from another folder
    fs::copy(place("other") / "step-00000010", root() + "/step-00000010", fs::copy_options::recursive);
    EXPECT_TRUE(says(refusal(found()), "step-00000010 is not of the same training as step-00000020"));
}

// A training that resumes from another folder is the same training.
TEST_F(Folder, IsOfTheTrainingThatResumesInIt) {
    run({10});
    fs::rename(root(), place("other"));
    const FoundCheckpoint other = found(place("other").string());
    run({11}, other);
    EXPECT_EQ(found().checkpoint.training, other.checkpoint.training);
    EXPECT_EQ(names(), (Names{"step-00000011"}));
    EXPECT_TRUE(says(refusal(other), "has checkpoints already"));  // needs --resume kept to continue here
}

TEST_F(Folder, KeepsCheckpointsLaterThanTheResumedOne) {
    run({2, 3, 4}, {}, 9);
    const FoundCheckpoint early = found(root() + "/step-00000002");
    EXPECT_TRUE(says(refusal(early), "has a later checkpoint, step-00000004, which would be replaced"));
    std::ofstream(root() + "/step-00000004/optimizer.safetensors", std::ios::app) << "x";
    EXPECT_TRUE(says(refusal(early), "has a later checkpoint, step-00000003"));
    run({4}, found());  // step 4 is not complete
    EXPECT_EQ(found().folder, root() + "/step-00000004");
    run({4}, found(root() + "/step-00000003"), 2, 4);  // the last step, again
    EXPECT_EQ(names(), (Names{"step-00000003", "step-00000004"}));
}

TEST_F(Folder, KeepsEntriesThatAreNotCheckpoints) {
    run({10, 20});
    std::ofstream(root() + "/step-00000020/notes.txt") << "mine";
    for (const char* name : {"step-00000001", "step-00000030"}) {
        fs::create_directories(fs::path(root()) / name);
        std::ofstream(fs::path(root()) / name / "thesis.txt") << "mine";
        std::ofstream(fs::path(root()) / name / "complete") << "mine";
    }
    EXPECT_TRUE(says(refusal(found(root() + "/step-00000020")), "step-00000030' has the name of a later checkpoint"));
    fs::remove_all(root() + "/step-00000030");
    fs::create_directory(root() + "/step-00000022");  // empty
    const auto before = files();
    run({21, 22, 23}, found(), 1);
    EXPECT_EQ(names(), (Names{"step-00000001", "step-00000020", "step-00000023"}));
    for (const auto& [path, text] : before)
        EXPECT_TRUE(path.starts_with("kept/step-00000010") || files()[path] == text) << path;
}

TEST_F(Folder, DoesNotFollowLinks) {
    run({10, 11});
    fs::rename(root(), place("best"));
    fs::create_directory(root());
    fs::create_directory_symlink(place("best") / "step-00000010", root() + "/step-00000010");
    const auto before = files();
    run({15, 20, 25, 30}, found());
    EXPECT_EQ(names(), (Names{"step-00000010", "step-00000025", "step-00000030"}));
    for (const auto& [path, text] : before)
        EXPECT_EQ(files()[path], text) << path;
    fs::create_directory_symlink(place("best") / "step-00000011", root() + "/step-00000031");
    EXPECT_TRUE(says(refusal(found(root() + "/step-00000030")), "has the name of a later checkpoint"));
    fs::remove(root() + "/step-00000031");
    // a link that appears during the run, and one in place of a file
    CheckpointFolder folder(root(), 1, 100);
    const FoundCheckpoint from = found();
    folder.open(&from);
    fs::create_directory_symlink(place("best") / "step-00000011", root() + "/step-00000031");
    EXPECT_THROW(folder.write(small_checkpoint(31)), Error);
    fs::remove(root() + "/step-00000025/optimizer.safetensors");
    fs::create_symlink(place("best") / "step-00000011" / "optimizer.safetensors",
                       root() + "/step-00000025/optimizer.safetensors");
    folder.write(small_checkpoint(32));
    for (const auto& [path, text] : before)
        EXPECT_EQ(files()[path], text) << path;
}

TEST_F(Folder, IsUsedByOneRunAtATime) {
    std::optional<CheckpointFolder> first;
    first.emplace(root(), 2, 100);
    first->open(nullptr);
    first->write(small_checkpoint(1));
    const FoundCheckpoint from = found();
    CheckpointFolder second(root(), 2, 100);
    try {
        second.open(&from);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::RunFailed);
        EXPECT_TRUE(says(error.what(),
                         fmt::format("process {} on host {} writes its checkpoints there", getpid(), host_name())))
            << error.what();
    }
    first.reset();
    second.open(&from);
    second.write(small_checkpoint(2));
}

// The file that a killed process leaves does not lock the folder, and a link of that name is not followed.
TEST_F(Folder, IsUnlockedWhenItsRunIsKilled) {
    const pid_t child = fork();
    if (child == 0) {
        CheckpointFolder folder(root(), 2, 100);
        folder.open(nullptr);
        folder.write(small_checkpoint(1));
        raise(SIGKILL);
    }
    waitpid(child, nullptr, 0);
    EXPECT_EQ(names(), (Names{"pipewright.lock", "step-00000001"}));
    run({2}, found());
    EXPECT_EQ(names(), (Names{"step-00000001", "step-00000002"}));
    std::ofstream(place("precious")) << "mine";
    fs::create_symlink(place("precious"), root() + "/pipewright.lock");
    EXPECT_THROW(run({3}, found()), Error);
    EXPECT_EQ(files()["precious"], "mine");
}

TEST_F(Folder, IsRemovedIfTheRunWritesNothing) {
    run({});
    EXPECT_FALSE(fs::exists(root()));
}

TEST_F(Folder, HasNoDraftsOfKilledRuns) {
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, nullptr, 0);
    const std::string draft = fmt::format("{}/.pipewright-{}-{}-0", root(), host_name(), child);
    fs::create_directories(draft);
    std::ofstream(draft + "/model.safetensors") << "half";
    fs::create_directories(fmt::format("{}/.pipewright-another-{}-0", root(), child));
    run({1});
    EXPECT_EQ(names(), (Names{fmt::format(".pipewright-another-{}-0", child), "step-00000001"}));
}

// An entry of the same name prevents a checkpoint.
TEST_F(Folder, ReportsALostLastCheckpointApartFromEarlierOnes) {
    const auto folder = std::make_shared<CheckpointFolder>(root(), 2, 100);
    folder->open(nullptr);
    CheckpointWriter writer(folder);
    std::ofstream(root() + "/step-00000002") << "in the way";
    for (const int step : {1, 2, 3})
        writer.write([step] { return small_checkpoint(step); });
    LostCheckpoints lost = writer.finish();
    ASSERT_EQ(lost.earlier.size(), 1u);
    EXPECT_TRUE(says(lost.earlier[0], "no checkpoint of step 2: cannot write")) << lost.earlier[0];
    EXPECT_EQ(lost.last, "");
    std::ofstream(root() + "/step-00000004") << "in the way";
    writer.write([] { return small_checkpoint(4); });
    lost = writer.finish();
    EXPECT_TRUE(lost.earlier.empty());
    EXPECT_TRUE(says(lost.last, "no checkpoint of step 4: cannot write")) << lost.last;
}

}  // namespace

}  // namespace pw
