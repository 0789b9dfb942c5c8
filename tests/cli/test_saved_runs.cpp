// `run --save` and the commands that read its folder, through the program.
#include "tests/support/cli_rig.h"

namespace pw {
namespace {

TEST_F(Cli, SavedParametersAreEvaluated) {
    const Json trained = run_well("run mlp.yaml --json --save weights").json();
    const std::string evaluate = "run mlp.yaml --set training.initial=weights --set pipeline.schedule=forward-only";
    const Json evaluated = run_well(evaluate + " --json").json();
    EXPECT_EQ(evaluated["weights_hash"], trained["weights_hash"]);
    EXPECT_EQ(evaluated["losses"].size(), 3u);  // of the samples of the three updates
    EXPECT_TRUE(evaluated["gradient_norms"].empty());
    const std::string out = run_well(evaluate).out;
    EXPECT_NE(out.find("\nmean loss "), std::string::npos) << out;
    EXPECT_NE(out.find(" of 3 mini-batches   weights "), std::string::npos) << out;
}

TEST_F(Cli, AFolderWithoutTheParametersIsRefused) {
    const std::string error = error_of("run mlp.yaml --set training.initial=nowhere", 2);
    EXPECT_NE(error.find("fc1.weight.npy"), std::string::npos) << error;
    EXPECT_NE(error.find("run --save"), std::string::npos) << error;
}

}  // namespace
}  // namespace pw
