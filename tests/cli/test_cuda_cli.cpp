// Commands over the cuda backend on the stand-in: what a file hands from one command to the next.
#include "tests/support/cli_rig.h"

namespace pw {
namespace {

class CudaCli : public Cli {
protected:
    CudaCli() { binary_ = PIPEWRIGHT_BINARY_ON_HOST; }
};

std::string with_all(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}

TEST_F(CudaCli, ARunDoesItsConvolutionsAsTheProfileSays) {
    write("net.yaml", R"(
workload: {model: unet, image_size: 16, base_channels: 8, levels: 1, dataset: synthetic}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 2, micro_batch_size: 2}
training: {steps: 1}
run: {backend: cuda, deterministic: false}
)");
    run_well("profile net.yaml -o measured.yaml");
    const std::string impossible = with_all(read("measured.yaml"), "algorithm: 0", "algorithm: 6");
    ASSERT_NE(impossible, read("measured.yaml"));
    write("impossible.yaml", impossible);
    const std::string run = "run net.yaml --set cluster.profile=", note = "of the profile's convolutions as it says";
    EXPECT_EQ(run_well(run + "measured.yaml").err.find(note), std::string::npos);
    EXPECT_NE(run_well(run + "impossible.yaml").err.find(note), std::string::npos);
    EXPECT_EQ(run_well(run + "impossible.yaml --set run.deterministic=true").err.find(note), std::string::npos);
}

TEST_F(CudaCli, CompareRunsOnGpus) {
    const std::string said = run_well("compare mlp.yaml --json --set run.backend=cuda").out;
    EXPECT_NE(said.find("\"measured\""), std::string::npos) << said;
}

}  // namespace
}  // namespace pw
