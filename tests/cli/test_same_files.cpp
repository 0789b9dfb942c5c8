// An output that is an input, or another output, is refused under any name before anything is written.
#include "tests/support/cli_rig.h"

#include "tests/support/refusal.h"

#include <fmt/format.h>

namespace pw {

namespace {

namespace fs = std::filesystem;

class SameFiles : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("layers.yaml",
              "samples: 1\nlayers: [{name: a, forward: 1 ms, output: 1 MB}, {name: b, forward: 2 ms}]\n");
        write("of_file.yaml",
              "workload: {model: layers.yaml}  # my notes\ncluster: {devices: 2}\nrun: {backend: emulated}\n"
              "pipeline: {micro_batches: 4}\n");
        run_well("simulate uniform.yaml --trace trace.json");
        run_well("plan uniform.yaml -o plan.csv");
        fs::create_symlink("of_file.yaml", file("link.yaml"));
        fs::create_hard_link(file("of_file.yaml"), file("hard.yaml"));
        fs::create_directory(file("folder"));
        for (const char* name : kInputs)
            before_.push_back(read(name));
    }
    void TearDown() override {
        for (std::size_t k = 0; k < before_.size(); ++k)
            EXPECT_EQ(read(kInputs[k]), before_[k]) << kInputs[k];
        Cli::TearDown();
    }

    static constexpr const char* kInputs[] = {"layers.yaml", "of_file.yaml", "mlp.yaml", "trace.json", "plan.csv"};
    std::vector<std::string> before_;
};

TEST_F(SameFiles, NoOutputReplacesAnInput) {
    for (const auto& [arguments, option] : std::vector<std::pair<std::string, std::string>>{
             {"search of_file.yaml -o of_file.yaml", "-o"},
             {"search of_file.yaml -o ./folder/../of_file.yaml", "-o"},
             {"search of_file.yaml -o link.yaml", "-o"},
             {"search of_file.yaml -o hard.yaml", "-o"},
             {"search link.yaml -o of_file.yaml", "-o"},
             {"search of_file.yaml -o layers.yaml", "-o"},
             {"search of_file.yaml --csv of_file.yaml", "--csv"},
             {"search /dev/fd/5 -o of_file.yaml 5<of_file.yaml", "-o"},
             {"simulate of_file.yaml --trace layers.yaml", "--trace"},
             {"simulate of_file.yaml --csv of_file.yaml", "--csv"},
             {"simulate of_file.yaml --slack of_file.yaml", "--slack"},
             {"simulate uniform.yaml --set pipeline.schedule=plan.csv --csv plan.csv", "--csv"},
             {"simulate uniform.yaml --what-if pipeline.schedule=plan.csv --csv plan.csv", "--csv"},
             {"simulate uniform.yaml --set 'sweep={pipeline.schedule: [gpipe, plan.csv]}' --csv plan.csv", "--csv"},
             {"plan of_file.yaml -o of_file.yaml", "-o"},
             {"plot trace.json -o trace.json", "-o"},
             {"import trace.json -o trace.json", "-o"},
             {"profile mlp.yaml -o mlp.yaml", "-o"},
             {"compare trace.json trace.json --csv trace.json", "--csv"},
             {"compare of_file.yaml uniform.yaml --csv layers.yaml", "--csv"},
             {"compare mlp.yaml --csv mlp.yaml", "--csv"},
             {"compare mlp.yaml --schedules gpipe,1f1b --csv mlp.yaml", "--csv"},
             {"run mlp.yaml --trace mlp.yaml", "--trace"},
             {"run mlp.yaml --log mlp.yaml", "--log"},
             {"run mlp.yaml --set training.initial=folder --save folder", "--save"},
             {"launch -n 2 mlp.yaml --log mlp.yaml", "--log"}}) {
        const Said said = run(arguments);
        EXPECT_EQ(said.code, 2) << arguments << said.err;
        EXPECT_TRUE(contains(said.err, fmt::format("error: {} '", option))) << arguments << said.err;
        EXPECT_TRUE(contains(said.err, "which the command reads\n  help: write to another ")) << said.err;
    }
}

TEST_F(SameFiles, NoOutputReplacesAnother) {
    for (const char* arguments :
         {"simulate uniform.yaml --trace new.json --plot ./new.json", "search of_file.yaml -o new --csv folder/../new",
          "run mlp.yaml --trace new --log new", "run mlp.yaml --dump folder --save folder/",
          "run mlp.yaml --dump new --save new --checkpoint other"}) {
        const std::string error = error_of(arguments, 2);
        EXPECT_TRUE(contains(error, " both write '")) << error;
        EXPECT_FALSE(fs::exists(file("new"))) << arguments;
        EXPECT_FALSE(fs::exists(file("new.json"))) << arguments;
    }
}

TEST_F(SameFiles, DevicesAndEarlierOutputsMayBeWritten) {
    run_well("simulate uniform.yaml --trace /dev/null --csv /dev/null");
    run_well("simulate uniform.yaml --csv - --trace new.json");
    run_well("simulate uniform.yaml --trace new.json");
    run_well("run mlp.yaml --checkpoint kept");
    run_well("run mlp.yaml --resume kept --checkpoint kept --steps 4");
    run_well("profile mlp.yaml -o profile.yaml");
    run_well("profile mlp.yaml --set cluster.profile=profile.yaml -o profile.yaml");  // it is measured again
}

}  // namespace

}  // namespace pw
