// The errors of mistakes: the typed command, and what the message must contain. The help is followed.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <vector>

namespace pw {

namespace {

struct Mistake {
    std::string typed;
    std::vector<std::string> said;
    int code = 2;
};

class Messages : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("four.yaml",
              "workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, backward_weight: 1 us}\n"
              "cluster: {devices: 4}\n"
              "pipeline: {schedule: 1f1b, micro_batches: 8}\n");
        write("gpt.yaml",
              "workload: {model: gpt, sequence_length: 16, vocabulary: 64, embedding: 32, blocks: 2, heads: 2}\n"
              "cluster: {devices: 2}\n");
        write("net.graph.txt",
              "node1 -- a -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
              "node2 -- b -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
              "\tnode1 -- node2\n");
        write("layers.yaml", "samples: 1\nlayers: [{name: a, forward: 4 ms, backward: 8 ms}]\n");
    }

    void expect(const Mistake& mistake) const {
        const std::string error = error_of(mistake.typed, mistake.code);
        for (const std::string& part : mistake.said)
            EXPECT_TRUE(contains(error, part)) << mistake.typed << "\nno '" << part << "' in\n" << error;
        EXPECT_EQ(contains(error, "help: schedule"), false) << error;
    }

    void expect_all(const std::vector<Mistake>& mistakes) const {
        for (const Mistake& mistake : mistakes)
            expect(mistake);
    }
};

std::string set(const std::string& assignment) { return "simulate four.yaml --set '" + assignment + "'"; }

}  // namespace

TEST_F(Messages, UnknownSchedulesHaveANearestName) {
    expect_all({{set("pipeline.schedule=1fb1"), {"no schedule '1fb1'", "did you mean '1f1b'?", "gpipe"}},
                {set("pipeline.schedule=inteleaved"), {"did you mean 'interleaved'?"}},
                {set("pipeline.schedule=zbvzerobuble"), {"did you mean 'zbvzerobubble'?"}},
                {set("pipeline.schedule=qqqqq"), {"no schedule 'qqqqq'", "help: the schedules are naive, gpipe"}},
                {"search mlp.yaml --set search.schedules=[1fb1]", {"did you mean '1f1b'?"}},
                {"compare mlp.yaml --schedules naive,1fb1", {"no schedule '1fb1'", "did you mean '1f1b'?"}}});
    for (const char* name : {"BPipe", "terapipe", "xpipe"})
        expect({set(fmt::format("pipeline.schedule={}", name)), {"is not in this version", "help: the schedules are"}});
    EXPECT_EQ(run_well("simulate four.yaml --json --set pipeline.schedule=VPP").json()["schedule"], "interleaved");
    EXPECT_TRUE(contains(run_well("list schedules").out, "vpp"));
}

TEST_F(Messages, QuantitiesHaveANearestUnit) {
    expect_all({{set("cluster.link.bandwidth=100 Gb/s"), {"did you mean 100 GB/s or 100 Gbit/s?", "Gbps"}},
                {set("cluster.link.bandwidth=100 gbps"), {"did you mean 100 GB/s or 100 Gbit/s?"}},
                {set("cluster.link.bandwidth=10 GB"), {"did you mean 10 GB/s?"}},
                {set("cluster.memory=16 gb"), {"which is no size", "did you mean 16 GB?"}},
                {set("cluster.memory=16 gib"), {"did you mean 16 GiB?"}},
                {set("cluster.memory=10M"), {"did you mean 10 MB?"}},
                {set("workload.forward=5 Sec"), {"which is no time", "did you mean 5 s?"}},
                {set("cluster.compute=10 TFLOPS"), {"did you mean 10 TFLOP/s?"}},
                {set("cluster.memory=16 apples"), {"which is no size", "help: write a number and B, kB"}}});
    const auto step = [&](const std::string& assignment) {
        return run_well(set(assignment) + " --json --set workload.output=1MB").json()["step_time_ns"];
    };
    EXPECT_EQ(step("cluster.link.bandwidth=100 Gbps"), step("cluster.link.bandwidth=100 Gbit/s"));
    EXPECT_EQ(step("workload.forward=5 µs"), step("workload.forward=5 us"));
    EXPECT_EQ(step("workload.forward=5 μs"), step("workload.forward=5 us"));  // the letter mu
}

// The mistake is in --set, and following the help is enough.
TEST_F(Messages, StagesThatDoNotFitHaveAHelpThatWorks) {
    expect({set("pipeline.schedule=zb-v"),
            {"zb-v places two stages on each device: 4 stages on 4 devices do not fit", "--> pipeline.schedule\n",
             "pipeline.schedule=zb-v", "help: set workload.stages to 8, or cluster.devices to 2"}});
    run_well(set("pipeline.schedule=zb-v") + " --set workload.stages=8");
    run_well(set("pipeline.schedule=zb-v") + " --set cluster.devices=2");
    expect({set("cluster.devices=8"),
            {"8 devices for 4 stages", "--> cluster.devices\n", "set workload.stages to 8, or cluster.devices to 4",
             "pipeline.replicas: [2, 2, 2, 2]"}});
    for (const char* way : {"workload.stages=8", "cluster.devices=4", "pipeline.replicas=[2,2,2,2]"})
        run_well(set("cluster.devices=8") + " --set " + way);
    const std::string looped = set("pipeline.schedule=interleaved") + " --set workload.stages=6";
    expect({looped, {"6 stages on 4 devices", "set workload.stages to 8, or cluster.devices to 3"}});
    run_well(looped + " --set workload.stages=8");
    run_well(looped + " --set cluster.devices=3 --set pipeline.micro_batches=9");
    // as many replicas of a pipeline would not divide the devices
    expect({set("pipeline.schedule=interleaved") + " --set workload.stages=1",
            {"4 devices for 1 stages", "set workload.stages to 4, or cluster.devices to 1 (the times"}});
    expect({set("pipeline.schedule=interleaved") + " --set workload.stages=3 --set cluster.devices=6",
            {"6 devices for 3 stages", "set workload.stages to 6, or cluster.devices to 3 (the times"}});
    write(
        "lists.yaml",
        "workload: {model: uniform, forward: [1 us, 2 us, 1 us]}\ncluster: {devices: 2}\npipeline: {schedule: 1f1b}\n");
    expect({"simulate lists.yaml", {"list 2 values in workload.forward, or cluster.devices to 3"}});
    run_well("simulate lists.yaml --set 'workload.forward=[1 us, 2 us]'");
    run_well("simulate lists.yaml --set cluster.devices=3");
    expect({"simulate mlp.yaml --set cluster.devices=3 --set 'pipeline.split=[fc2]' --set pipeline.stages=2",
            {"set pipeline.stages to 3 and make 3 stages in pipeline.split, or cluster.devices to 2"}});
}

TEST_F(Messages, MicroBatchesThatDoNotFitHaveAHelpThatWorks) {
    const std::string two = set("pipeline.schedule=pipedream-2bw") + " --set pipeline.micro_batches=2";
    expect({two,
            {"at least as many micro-batches per update as devices: 2 for 4", "pipeline.micro_batches=2",
             "help: take 4 micro-batches or more (pipeline.micro_batches)"}});
    run_well(two + " --set pipeline.micro_batches=4");
    const std::string nine =
        set("pipeline.schedule=interleaved") + " --set workload.stages=8 --set pipeline.micro_batches=9";
    expect({nine,
            {"equally long",
             "help: take 8 or 10 micro-batches, or groups of 5 (pipeline.micro_batches, pipeline.group)"}});
    for (const char* way : {"pipeline.micro_batches=8", "pipeline.micro_batches=10", "pipeline.group=5"})
        run_well(nine + " --set " + way);
    expect({nine + " --set pipeline.mini_batch=9", {"pipeline.mini_batch also sets their number"}});
    expect({nine + " --set pipeline.group=4", {"help: take groups of 5 (pipeline.group)", "pipeline.group=4"}});
}

TEST_F(Messages, AWrongModelIsTheOnlyMistake) {
    const std::string error = error_of("simulate gpt.yaml --set workload.model=bert", 2);
    EXPECT_TRUE(contains(error, "unknown model 'bert'")) << error;
    EXPECT_FALSE(contains(error, "is not for model")) << error;
    EXPECT_FALSE(contains(error_of("simulate four.yaml --set workload.model=unifrm", 2), "belongs to"));
}

// Files of other programs that are not read.
TEST_F(Messages, AFileThatIsNotReadIsNamed) {
    write("kernels.csv", "Time (%),Total Time (ns),Instances,Name\n100.0,10000000,4,gemm\n");
    write("numbers.csv", "1,2,3\n4,5,6\n");
    run_well("plan four.yaml --format csv -o plan.csv");
    write("layers.csv", "name,forward (ms),backward (ms)\na,3,6\n");
    expect_all(
        {{"import kernels.csv -o t.json",
          {"is a file of Nsight Systems without a table of ranges, not a trace", "--report nvtx_gpu_proj_trace"}},
         {"plot kernels.csv -o t.svg", {"is a file of Nsight Systems without a table of ranges, not a trace"}},
         {"validate kernels.csv", {"is a file of Nsight Systems without a table of ranges, not a config"}},
         {"import numbers.csv -o t.json", {"is a table, not a trace", "cells such as 0F0", "name, forward (ms)"}},
         {"simulate numbers.csv", {"is a table, not a config"}},
         {"import plan.csv -o t.json", {"is a plan, not a trace", "pipeline: {schedule: plan.csv}"}},
         {"import layers.csv -o t.json", {"is a model, not a trace", "workload: {model: layers.csv}"}}});
}

// Without the list of formats, which says nothing about them.
TEST_F(Messages, FilesThatAreNotCompleteAreShortlyRefused) {
    for (const auto& [text, part] :
         {std::pair("", "the text is empty"), std::pair("{}", "no key 'traceEvents'"),
          std::pair("{\"traceEvents\": [{\"ph\": \"X\", \"na", "the text ends in the middle"),
          std::pair("[{\"ph\": \"X\"},", "the text ends in the middle")}) {
        write("cut.json", text);
        const std::string message = error_of("plot cut.json -o x.svg", 2);
        expect_says(message, {"trace 'cut.json'", part, "help"});
        EXPECT_LT(message.size(), 250u) << message;
    }
}

TEST_F(Messages, AFileOfAnotherKindIsRecognised) {
    run_well("simulate four.yaml --trace trace.json");
    run_well("plan four.yaml --format csv -o plan.csv");
    run_well("profile mlp.yaml -o profile.yaml --set run.backend=reference");
    write("perf.json", R"({"traceEvents": [{"ph": "X", "name": "kernel", "ts": 1, "dur": 1}]})");
    write("list.json", R"([{"ph": "X", "name": "kernel", "ts": 1, "dur": 1}])");
    write("notes.txt", "nothing of ours\n");
    expect_all({{"simulate net.graph.txt", {"is a model, not a config", "workload: {model: net.graph.txt}"}},
                {"run layers.yaml", {"is a model, not a config", "workload: {model: layers.yaml}"}},
                {"search trace.json", {"is a trace, not a config", "pipewright plot trace.json -o FILE"}},
                {"plan profile.yaml", {"is a profile, not a config", "cluster: {profile: profile.yaml}"}},
                {"simulate plan.csv", {"is a plan, not a config", "pipeline: {schedule: plan.csv}"}},
                {"validate net.graph.txt", {"is a model, not a config"}},
                {"validate layers.yaml", {"is a model, not a config"}},
                {"plot four.yaml -o x.svg", {"is a config, not a trace", "pipewright simulate four.yaml --plot x.svg"}},
                {"plot profile.yaml -o x.svg", {"is a profile"}},
                {"compare profile.yaml trace.json", {"is a profile"}},
                {"plot perf.json -o x.txt", {"name a trace that pipewright wrote"}},
                {"plot list.json -o x.txt", {"name a trace that pipewright wrote"}},
                {"plot notes.txt -o x.txt", {"name a trace that pipewright wrote"}}});
    write("cfg.yaml", "{workload: {model: net.graph.txt}, cluster: {devices: 2}}");
    run_well("simulate cfg.yaml");
    run_well("simulate mlp.yaml --set cluster.profile=profile.yaml");
}

TEST_F(Messages, ProfilesAreValidated) {
    run_well("profile mlp.yaml -o profile.yaml --set run.backend=reference");
    EXPECT_TRUE(run_well("validate profile.yaml").out.starts_with("ok: profile profile.yaml: mlp, "));
    const Json json = run_well("validate profile.yaml --json").json();
    EXPECT_EQ(json["kind"], "profile");
    EXPECT_EQ(json["micro_batch_sizes"], Json{2});
    write("broken.yaml", read("profile.yaml") + "  - name: late\n");
    expect({"validate broken.yaml", {"is missing"}});
}

TEST_F(Messages, PicturesAreRefusedBeforeTheWork) {
    expect_all({{"simulate four.yaml --plot nowhere/x.svg", {"cannot write 'nowhere/x.svg': there is no folder"}, 1},
                {"plot nothing.json -o nowhere/x.html", {"cannot write 'nowhere/x.html'"}, 1},
                {"simulate four.yaml --plot x.gif", {".svg .png"}}});
    // So large that its simulation would take too long to wait for.
    const std::string large =
        "simulate four.yaml --set cluster.devices=30000 --set workload.stages=30000 --plot x.html";
    expect({large, {"cannot draw 'x.html'", "up to 4096 devices, the trace has 30000", "Perfetto"}});
}

TEST_F(Messages, ADeadlockIsOneTaskPerLine) {
    write("file.yaml", "workload: {model: uniform}\npipeline: {schedule: early.csv}\n");
    write("early.csv",
          "0RECV_B0,0F0,0SEND_F0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
          "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
    const std::string error = error_of("simulate file.yaml --set transfer.communicator=one", 3);
    EXPECT_TRUE(contains(error, "each task waits for the one below, the last for the first\n    ")) << error;
    EXPECT_TRUE(contains(error, "\n  help: it completes with communicator: edge (transfer.communicator)\n")) << error;
    std::istringstream lines(error);
    for (std::string line; std::getline(lines, line);)
        EXPECT_LT(line.size(), 160u) << error;
}

TEST_F(Messages, ATableOfSchedulesNeedsNoFolder) {
    const Said said = run_well("compare mlp.yaml --schedules naive,gpipe --set run.backend=emulated");
    EXPECT_TRUE(contains(said.out, "predicted step")) << said.out;
    EXPECT_TRUE(contains(said.out, "\ngpipe ")) << said.out;
    EXPECT_FALSE(std::filesystem::exists(file("accuracy.json")));
    EXPECT_FALSE(std::filesystem::exists(file("table.txt")));
    expect({"compare mlp.yaml -o study", {"-o is the folder of --schedules"}});
}

TEST_F(Messages, NoFileIsLeftNextToAPicture) {
    const std::string path = std::getenv("PATH");
    if (std::system("command -v gnuplot >/dev/null") == 0) {
        run_well("simulate four.yaml --plot x.svg");
        EXPECT_TRUE(std::filesystem::exists(file("x.svg")));
    }
    setenv("PATH", file("nowhere").c_str(), 1);
    const Said said = run("simulate four.yaml --plot y.svg");  // whose results are printed anyway
    setenv("PATH", path.c_str(), 1);
    EXPECT_EQ(said.code, 1);
    EXPECT_TRUE(contains(said.out, "step time")) << said.out;
    EXPECT_TRUE(contains(said.err, "gnuplot not found")) << said.err;
    for (const auto& entry : std::filesystem::directory_iterator(file(".")))
        EXPECT_FALSE(contains(entry.path().filename().string(), ".dat") ||
                     contains(entry.path().filename().string(), ".gp"))
            << entry.path();
}

TEST_F(Messages, HelpHasExamplesAndOwnTypeNames) {
    for (const char* command :
         {"simulate", "profile", "run", "launch", "compare", "search", "import", "plot", "validate", "plan", "list"}) {
        const std::string help = run_well(fmt::format("{} --help", command)).out;
        EXPECT_TRUE(contains(help, fmt::format("Examples:\n  pipewright {} ", command))) << help;
        for (const char* odd : {"(1x)", "INT", " in [", "POSITIVE"})
            EXPECT_FALSE(contains(help, odd)) << odd << " in\n" << help;
    }
    EXPECT_TRUE(contains(run_well("plot --help").out, "TRACE..."));
    EXPECT_TRUE(contains(run_well("run --help").out, "continue from a checkpoint"));
    EXPECT_TRUE(contains(run_well("list transports").out, "devices of several processes (mpirun)"));
}

TEST_F(Messages, ALineThatASweepCannotDrawIsNamed) {
    const std::string sweep =
        "simulate four.yaml --set 'sweep={pipeline.micro_batches: [8, 9], pipeline.schedule: [zb-v, 1f1b]}' --plot "
        "x.json";
    EXPECT_TRUE(contains(run_well(sweep).err, "note: the picture has no line of zb-v: schedule zb-v places two"));
    const std::string gap =
        "simulate four.yaml --set workload.stages=8 --set 'sweep={pipeline.micro_batches: [8, 9], pipeline.schedule: "
        "[interleaved, bfs]}' --plot x.json";
    EXPECT_TRUE(contains(run_well(gap).err, "note: 1 of 2 points of interleaved are missing: 9 micro-batches"));
    run_well("simulate four.yaml --plot x.json --set 'sweep={pipeline.schedule: [gpipe, 1f1b]}'");  // bars
}

TEST_F(Messages, ASweepReportsWhereMoreMicroBatchesGainLittle) {
    const std::string sweep = "simulate four.yaml --set 'sweep={pipeline.micro_batches: [8, 64, 128]}'";
    const std::string out = run_well(sweep).out;
    EXPECT_TRUE(contains(out, "best: micro_batches 128: ")) << out;
    EXPECT_TRUE(contains(out, "fewer micro-batches: micro_batches 64: 97.8 % of its samples/s\n")) << out;
    EXPECT_FALSE(contains(run_well("simulate four.yaml --set 'sweep={pipeline.micro_batches: [4, 8]}'").out, "fewer"));
}

}  // namespace pw
