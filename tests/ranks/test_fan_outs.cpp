// A model whose tensors many stages read: its runs on ranks equal its oracle, over MPI and over the stand-in of
// NCCL.
#include "tests/support/many_readers.h"
#include "tests/support/mpi_rig.h"
#include "tests/support/thoroughness.h"

#include <cstdlib>
#include <string>

namespace pw {
namespace {

class FanOutOnRanks : public MpiRig {
protected:
    void SetUp() override {
        MpiRig::SetUp();
        setenv("HOST_CUDA_DEVICES", "4", 1);
        write("readers.yaml", fmt::format("{}cluster: {{devices: 4}}\nrun: {{timeout: 60 s}}\n", kManyReaders));
    }
    void TearDown() override {
        unsetenv("HOST_CUDA_DEVICES");
        MpiRig::TearDown();
    }
    void expect_oracle(const char* program, const std::string& set) {
        binary_ = program;
        const Said oracle = run_well("reference readers.yaml " + set);
        EXPECT_EQ(oracle.out.size(), 17u) << oracle.out;
        for (const int ranks : {2, 4}) {
            const Said said = launch(fmt::format("-n {} '{}' run readers.yaml {}", ranks, program, set));
            EXPECT_EQ(said.code, 0) << said.err;
            EXPECT_EQ(said.out, oracle.out) << set << " on " << ranks;
        }
    }
};

constexpr const char* kFourStages = "pipeline.split=[block1.add,block3.bn,block5.add]";
constexpr const char* kReplicas = "pipeline.split=[block3] pipeline.replicas=[2,2]";

TEST_P(FanOutOnRanks, OverMpi) {
    OneIn some(2);
    for (const char* set : {"pipeline.schedule=zb-h1", "pipeline.schedule=pipedream", "run.fan_out_gradients=layer",
                            "transfer.receive=deferred"})
        if (some.picks())
            expect_oracle(MANY_READERS, fmt::format("{} {}", kFourStages, set));
    expect_oracle(MANY_READERS, kReplicas);
}

TEST_P(FanOutOnRanks, OverNccl) {
    for (const char* set : {"pipeline.schedule=gpipe", "run.fan_out_gradients=layer"})
        expect_oracle(MANY_READERS, fmt::format("run.backend=cuda {} {}", kFourStages, set));
}

INSTANTIATE_TEST_SUITE_P(Ranks, FanOutOnRanks, testing::ValuesIn(usual_mpis()), name_of_mpi);

}  // namespace
}  // namespace pw
