// Files of parameters: training.initial reads the files that --save and --dump write.
#include "exec/training/npy.h"
#include "exec/training/parameter_files.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

std::string npy(int version, const std::string& dictionary, const std::string& data = std::string(24, '\0')) {
    std::string header = dictionary + '\n', text = "\x93NUMPY";
    text += static_cast<char>(version);
    text += '\0';
    for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte)
        text += static_cast<char>(header.size() >> (8 * byte) & 0xff);
    return text + header + data;
}

TEST(Npy, RoundTrips) {
    const TemporaryFolder folder;
    for (const std::vector<int>& shape : {std::vector<int>{6}, {2, 3}, {1, 2, 3, 1}, {0, 6}}) {
        const std::string file = (folder.path() / "a.npy").string();
        const std::vector<float> values =
            shape[0] == 0 ? std::vector<float>{} : std::vector<float>{1, -2.5f, 3, 4, 5, 6};
        write_npy(file, shape, values);
        EXPECT_EQ(read_npy_shape(file), shape);
        EXPECT_EQ(read_npy(file), values);
    }
}

TEST(Npy, EveryVersionIsRead) {
    const TemporaryFolder folder;
    for (const char* dictionary : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                                   "{\"shape\": (2,3),'fortran_order':False , 'descr':'<f4'}     "})
        for (const int version : {1, 2, 3}) {
            const std::string file = folder.write("a.npy", npy(version, dictionary));
            EXPECT_EQ(read_npy_shape(file), (std::vector<int>{2, 3}));
            EXPECT_EQ(read_npy(file), std::vector<float>(6, 0));
        }
}

TEST(Npy, OtherFilesAreRefused) {
    const TemporaryFolder folder;
    const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    const auto expect_refused = [&](const std::string& text, const std::string& why) {
        const std::string file = folder.write("a.npy", text);
        expect_says(refusal([&] { (void)read_npy(file); }), {file, why});
    };
    expect_refused("", "not a .npy file");
    expect_refused("PK\x03\x04 a zip archive", "not a .npy file");
    expect_refused(npy(4, good), "version 4");
    expect_refused(npy(1, good).substr(0, 30), "cut off");
    expect_refused(npy(1, good, "12345678"), "8 bytes follow its header");
    expect_refused(npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"), "'<f8', not '<f4'");
    expect_refused(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }"), "not '<f4'");
    expect_refused(npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"), "Fortran order");
    for (const char* header : {"", "{", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
                               "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}",
                               "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,)}",
                               "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}"})
        expect_refused(npy(1, header), "header is not one that NumPy writes");
    expect_refused(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2147483647, 2147483647, 2147483647)}"),
                   "24 bytes follow");
    expect_says(refusal([&] { (void)read_npy(folder.path().string()); }),
                {"is a folder, not a file", folder.path().string()});
}

RunOptions saving(const std::filesystem::path& folder) { return {.dump = "", .save = folder.string(), .progress = {}}; }

std::string from(const std::filesystem::path& folder) { return "training.initial=" + folder.string(); }

// Names and layouts are those of the dump, for every backend and split.
TEST(InitialParameters, OfTheSeedAreReadBack) {
    const TemporaryFolder folder;
    const std::vector<std::string> two{"cluster.devices=2", "run.backend=cpu"};
    const RunResult seeded = Execution(kMlp, two).run({.dump = folder.path().string(), .save = "", .progress = {}});
    const std::filesystem::path initial = folder.path() / "initial";
    for (const char* devices : {"cluster.devices=1", "cluster.devices=2"})
        expect_equal(Execution(kMlp, {devices, "run.backend=cpu", "training.seed=3", from(initial)}).run(), seeded,
                     devices);
}

TEST(InitialParameters, KeepTheHashOfSavedOnes) {
    for (const char* backend : {"run.backend=cpu", "run.backend=reference"}) {
        const TemporaryFolder folder;
        const RunResult trained = Execution(kMlp, {"cluster.devices=2", backend}).run(saving(folder.path()));
        const Execution evaluation(kMlp, {"pipeline.schedule=forward-only", backend, from(folder.path())});
        EXPECT_EQ(evaluation.run().weights_hash, trained.weights_hash);
        EXPECT_EQ(evaluation.oracle().weights_hash, trained.weights_hash);
    }
}

// Without momentum a mini-batch depends only on the weights, so that two runs of one step equal one run of two.
TEST(InitialParameters, ContinueATraining) {
    const TemporaryFolder folder;
    const std::vector<std::string> plain{"training.momentum=0", "training.steps=1", "cluster.devices=2"};
    const RunResult once = Execution(kMlp, plain)
                               .run({.dump = (folder.path() / "dump").string(),
                                     .save = (folder.path() / "saved").string(),
                                     .progress = {}});
    const RunResult dumped = Execution(kMlp, with(plain, {from(folder.path() / "dump" / "updated")})).run();
    const RunResult saved = Execution(kMlp, with(plain, {from(folder.path() / "saved")})).run();
    expect_equal(dumped, saved, "weights of the only update");
    EXPECT_NE(saved.losses, once.losses);
    EXPECT_LT(saved.losses[0], once.losses[0]);  // the same samples again
}

TEST(InitialParameters, ThatDoNotFitAreNamed) {
    const TemporaryFolder folder;
    (void)Execution(kMlp, {}).run(saving(folder.path()));
    const Execution execution(kMlp, {from(folder.path())});
    folder.write("other.npy", "anything");
    (void)execution.run();
    const std::string file = (folder.path() / "fc2.bias.npy").string();
    write_npy(file, {5}, {1, 2, 3, 4, 5});
    expect_says(refusal([&] { (void)execution.run(); }), {file, "(5)", "expected (96)", "training.initial"});
    expect_says(refusal([&] { (void)execution.oracle(); }), {file});
    std::filesystem::remove(file);
    expect_says(refusal([&] { (void)execution.run(); }), {"there is no " + file, "run --save"});
    const Execution nowhere(kMlp, {from(folder.path() / "nothing")});
    expect_says(refusal([&] { (void)nowhere.run(); }), {"there is no"});
}

TEST(InitialParameters, CannotBeSavedByEmulatedDevices) {
    const TemporaryFolder folder;
    const Execution execution(kMlp, {"run.backend=emulated"});
    expect_says(refusal([&] { (void)execution.run(saving(folder.path())); }), {"no tensors", "--save"});
}

}  // namespace
}  // namespace pw
