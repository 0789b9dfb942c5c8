// Commands with the cuda backend on the stand-in: files that one command writes and another one reads.
#include "tests/support/cli_rig.h"

#include <regex>

namespace pw {
namespace {

class CudaCli : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        use_module("cuda_on_host_module.so");
    }
    void TearDown() override {
        unsetenv("PIPEWRIGHT_CUDA_MODULE");
        Cli::TearDown();
    }
    static void use_module(const std::string& file) {
        setenv("PIPEWRIGHT_CUDA_MODULE", (PIPEWRIGHT_MODULES "/" + file).c_str(), 1);
    }
    // Returns the error of a run where the module cannot be loaded. Commands that need no GPU work.
    std::string refusal(int code) const {
        run_well("run mlp.yaml");
        run_well("simulate mlp.yaml --set run.backend=cuda");
        run_well("--version");
        return error_of("run mlp.yaml --set run.backend=cuda", code);
    }
    std::string status() const {
        const std::string list = run_well("list backends").out;
        const std::size_t begin = list.find("cuda");
        return list.substr(begin, list.find('\n', begin) - begin);
    }
};

TEST_F(CudaCli, ARunUsesTheConvolutionsOfTheProfile) {
    write("net.yaml", R"(
workload: {model: unet, image_size: 16, base_channels: 8, levels: 1, dataset: synthetic}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 2, micro_batch_size: 2}
training: {steps: 1}
run: {backend: cuda, deterministic: false}
)");
    run_well("profile net.yaml -o measured.yaml");
    const std::string impossible = std::regex_replace(read("measured.yaml"), std::regex("plan: [0-9]+"), "plan: 6");
    ASSERT_NE(impossible, read("measured.yaml"));
    write("impossible.yaml", impossible);
    const std::string run = "run net.yaml --set cluster.profile=",
                      note = "of the convolutions with the profile's plans";
    EXPECT_EQ(run_well(run + "measured.yaml").err.find(note), std::string::npos);
    EXPECT_NE(run_well(run + "impossible.yaml").err.find(note), std::string::npos);
    EXPECT_EQ(run_well(run + "impossible.yaml --set run.deterministic=true").err.find(note), std::string::npos);
}

TEST_F(CudaCli, AModuleRunsAPlanAndItsOracle) {
    EXPECT_NE(status().find("ready"), std::string::npos) << status();
    const Json run = run_well("run mlp.yaml --json --set run.backend=cuda").json();
    const Json oracle = run_well("run mlp.yaml --json --reference --set run.backend=cuda").json();
    EXPECT_EQ(run["weights_hash"], oracle["weights_hash"]);
    EXPECT_EQ(run["losses"], oracle["losses"]);
}

TEST_F(CudaCli, ProductsAreMeasured) {
    write("config.json", R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                             "intermediate_size": 40, "vocab_size": 100})");
    write("tiny.yaml", R"(
workload: {model: config.json, sequence_length: 16}
cluster: {devices: 1, device: h100-sxm-80}
training: {precision: bf16}
run: {backend: cuda}
)");
    run_well("profile tiny.yaml --gemm --seconds 5 -o products.yaml");
    EXPECT_NE(run_well("validate products.yaml").out.find("15 in bf16"), std::string::npos);
    run_well("simulate tiny.yaml --set cluster.products=products.yaml");
}

TEST_F(CudaCli, AnErrorInTheModuleEndsTheProgramLikeOthers) {
    const std::string said = error_of("run mlp.yaml --set run.backend=cuda --set run.gpus=[0,7]", 2);
    EXPECT_NE(said.find("GPU 7"), std::string::npos) << said;
    EXPECT_NE(said.find("\n  help: "), std::string::npos) << said;
}

TEST_F(CudaCli, AMissingModuleIsBadInput) {
    use_module("nowhere.so");
    const std::string said = refusal(2);
    for (const char* part :
         {"run.backend cuda is not installed", "--> run.backend\n", "cpu, reference or emulated", "nowhere.so"})
        EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_NE(status().find("not installed"), std::string::npos) << status();
}

TEST_F(CudaCli, AMissingLibraryIsNamedWithItsPackage) {
    use_module("cuda_without_a_library.so");
    const std::string said = refusal(1);
    for (const char* part : {"run.backend cuda: libcudnn_absent.so.9 is missing", "pip install nvidia-cudnn-cu13",
                             "LD_LIBRARY_PATH", "cpu, reference or emulated"})
        EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_NE(status().find("libcudnn_absent.so.9 is missing"), std::string::npos) << status();
}

TEST_F(CudaCli, AModuleOfAnotherVersionIsRefused) {
    use_module("cuda_of_another_version.so");
    const std::string said = refusal(1);
    for (const char* part : {"is of another build of pipewright", "its version is 0.0.1-0123456789ab, the program's "})
        EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST_F(CudaCli, CompareRunsOnGpus) {
    run_well("profile mlp.yaml -o profile.yaml --set run.backend=cuda");
    const std::string compare = "compare mlp.yaml --set run.backend=cuda --set cluster.profile=profile.yaml";
    const std::string said = run_well(compare).out;
    EXPECT_NE(said.find("\nmemory of GPU 0 "), std::string::npos) << said;
    const Json compared = run_well(compare + " --json").json();
    const Json& gpus = compared["measured"]["gpus"];
    ASSERT_EQ(gpus.size(), 1u);
    EXPECT_EQ(gpus[0]["devices"], Json({0, 1}));
    std::int64_t reserved = 0;  // in whole 2 MiB
    for (const Json& device : compared["predicted"]["devices"])
        reserved += (device["reserved_memory_bytes"].get<std::int64_t>() + (2 << 20) - 1) >> 21 << 21;
    const auto grown = gpus[0]["grown_bytes"].get<double>();
    EXPECT_GT(gpus[0]["used_bytes"], grown);
    EXPECT_DOUBLE_EQ(compared["gpu_memory_error"], (static_cast<double>(reserved) - grown) / grown);
    EXPECT_TRUE(compared["resident_memory_error"].is_null());
}

}  // namespace
}  // namespace pw
