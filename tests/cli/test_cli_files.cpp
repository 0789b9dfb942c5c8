// The program with closed streams, a full disk, and inputs that are not files: nothing is lost, hangs or aborts.
#include "tests/support/cli_rig.h"

#include "tests/support/refusal.h"

#include <algorithm>

#include <sys/stat.h>

namespace pw {

namespace {

namespace fs = std::filesystem;

class CliFiles : public Cli {
protected:
    // Runs lines of shell, with PIPEWRIGHT for the program. Its output is kept unless it is redirected.
    Said shell(const std::string& line) const {
        write("line.sh", "cd '" + file("").string() + "'\nPIPEWRIGHT='" PIPEWRIGHT_BINARY "'\n" + line + "\n");
        const std::string command = "bash '" + file("line.sh").string() + "' >'" + file("said.out").string() + "' 2>'" +
                                    file("said.err").string() + "' </dev/null";
        const int status = std::system(command.c_str());
        return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("said.out"), read("said.err")};
    }

    // Runs with files that cannot grow beyond this many kibibytes, as on a full disk.
    Said with_full_disk(int kib, const std::string& arguments) const {
        return shell("ulimit -f " + std::to_string(kib) + "; \"$PIPEWRIGHT\" " + arguments);
    }

    std::vector<std::string> leftovers() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::recursive_directory_iterator(file("")))
            if (entry.path().filename().string().starts_with(".pipewright"))
                names.push_back(entry.path().string());
        return names;
    }
};

}  // namespace

TEST_F(CliFiles, AResultThatCannotBeWrittenIsAFailure) {
    for (const char* command : {"--help", "--version", "list schedules", "simulate uniform.yaml", "plan uniform.yaml",
                                "simulate uniform.yaml --json", "validate uniform.yaml"})
        for (const char* target : {">/dev/full", ">&-"}) {
            const Said said = shell(std::string("\"$PIPEWRIGHT\" ") + command + " " + target);
            EXPECT_EQ(said.code, 1) << command << target << said.err;
            EXPECT_TRUE(contains(said.err, "error: cannot write to standard output: ")) << command << said.err;
        }
}

TEST_F(CliFiles, AnErrorStreamThatCannotBeWrittenChangesNothing) {
    for (const char* target : {"2>/dev/full", "2>&-"}) {
        EXPECT_EQ(shell(std::string("\"$PIPEWRIGHT\" simulate nowhere.yaml ") + target).code, 2);
        EXPECT_EQ(shell(std::string("\"$PIPEWRIGHT\" simulate mlp.yaml ") + target).code, 0);  // has a note
        EXPECT_EQ(shell(std::string("\"$PIPEWRIGHT\" simulate mlp.yaml >/dev/full ") + target).code, 1);
    }
}

// The number of a closed stream must not be reused for the trace.
TEST_F(CliFiles, AClosedStreamNeverEndsInAFile) {
    const Said said = shell("\"$PIPEWRIGHT\" simulate uniform.yaml --trace t.json >&- 2>&- <&-");
    EXPECT_EQ(said.code, 1);
    EXPECT_TRUE(Json::parse(read("t.json")).contains("traceEvents"));
}

TEST_F(CliFiles, AReaderThatLeavesEndsTheProgramQuietly) {
    const Said said = shell("\"$PIPEWRIGHT\" plan uniform.yaml --set pipeline.micro_batches=5000 | head -n 1");
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.err, "");
    EXPECT_EQ(std::count(said.out.begin(), said.out.end(), '\n'), 1);
}

TEST_F(CliFiles, AFullDiskDoesNotLoseTheResults) {
    write("old.json", "old");
    const Said simulated = with_full_disk(4, "simulate uniform.yaml --trace old.json --plot old.html");
    EXPECT_EQ(simulated.code, 1);
    EXPECT_TRUE(contains(simulated.out, "step time 33.00 us")) << simulated.out;
    EXPECT_TRUE(contains(simulated.err, "error: cannot write 'old.json': ")) << simulated.err;
    EXPECT_EQ(read("old.json"), "old");
    EXPECT_FALSE(fs::exists(file("old.html")));
    const Said profiled = with_full_disk(2, "profile mlp.yaml -o profile.yaml");
    EXPECT_EQ(profiled.code, 1);
    EXPECT_TRUE(contains(profiled.out, "samples/s unpipelined")) << profiled.out;
    EXPECT_FALSE(fs::exists(file("profile.yaml")));
    EXPECT_EQ(leftovers(), std::vector<std::string>{});
}

TEST_F(CliFiles, AFullDiskKeepsThePreviouslySavedParameters) {
    run_well("run mlp.yaml --save weights");
    const std::string before = read("weights/fc1.weight.npy") + read("weights/fc3.bias.npy");
    const Said said = with_full_disk(64, "run mlp.yaml --set training.seed=5 --save weights --dump dump");
    EXPECT_EQ(said.code, 1);
    EXPECT_TRUE(contains(said.out, "loss ")) << said.out;
    EXPECT_TRUE(contains(said.err, "error: cannot write 'dump")) << said.err;
    EXPECT_EQ(read("weights/fc1.weight.npy") + read("weights/fc3.bias.npy"), before);
    EXPECT_FALSE(fs::exists(file("dump")));
    EXPECT_EQ(leftovers(), std::vector<std::string>{});
}

TEST_F(CliFiles, AnIncompleteSaveIsRefused) {
    run_well("run mlp.yaml --save weights");
    run_well("run mlp.yaml --set training.initial=weights");
    fs::create_directory(file("weights/.pipewright-moving"));
    EXPECT_TRUE(contains(error_of("run mlp.yaml --set training.initial=weights", 2), "was interrupted"));
}

TEST_F(CliFiles, TargetsAreCheckedBeforeTheWork) {
    const std::string steps = "run mlp.yaml --steps 1000000000 ";  // which would take too long to wait for
    for (const char* target :
         {"--trace no/t.json", "--trace .", "--losses no/l.svg", "--save uniform.yaml", "--dump mlp.yaml/x"}) {
        const std::string error = error_of(steps + target, 1);
        EXPECT_TRUE(contains(error, "error: cannot write '")) << error;
    }
    EXPECT_TRUE(contains(error_of(steps + "--save x --dump ./x/", 2), " both write 'x'"));
    for (const char* command :
         {"simulate uniform.yaml --trace no/t.json", "simulate uniform.yaml --plot no/x.svg",
          "search mlp.yaml -o no/b.yaml", "search mlp.yaml --plot no/b.html", "profile mlp.yaml -o no/p.yaml",
          "compare mlp.yaml --plot no/x.html", "plan uniform.yaml -o no/p.csv",
          "compare mlp.yaml --schedules gpipe -o uniform.yaml"}) {
        const std::string error = error_of(command, 1);
        EXPECT_TRUE(contains(error, "error: cannot write '")) << command << error;
    }
}

TEST_F(CliFiles, PipesAndDevicesAreRefused) {
    ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
    ASSERT_EQ(mkfifo(file("pipe.csv").c_str(), 0600), 0);
    fs::create_directory(file("initial"));
    ASSERT_EQ(mkfifo(file("initial/fc1.weight.npy").c_str(), 0600), 0);
    for (const char* arguments : {"simulate pipe", "simulate mlp.yaml --set cluster.profile=pipe", "validate pipe.csv",
                                  "plot pipe -o x.html", "run mlp.yaml --set training.initial=initial",
                                  "simulate mlp.yaml --set "
                                  "pipeline.schedule=pipe.csv"})
        EXPECT_TRUE(contains(error_of(arguments, 2), "is a pipe, not a file")) << arguments;
    EXPECT_TRUE(contains(error_of("simulate /dev/zero", 2), "is a device, not a file"));
    EXPECT_TRUE(contains(error_of("simulate .", 2), "is a folder, not a file"));
    EXPECT_TRUE(contains(shell("cat uniform.yaml | \"$PIPEWRIGHT\" simulate /dev/stdin").out, "step time 33.00 us"));
    EXPECT_TRUE(contains(shell("\"$PIPEWRIGHT\" simulate <(cat uniform.yaml)").out, "step time 33.00 us"));
    const Said sweep =
        shell("cat uniform.yaml | \"$PIPEWRIGHT\" simulate - --set 'sweep={pipeline.micro_batches: [4, 8]}'");
    EXPECT_TRUE(contains(sweep.out, "33.00 us")) << sweep.err;
    write("times.csv", "name,forward ms,backward ms\na,1,2\nb,1,2\n");
    const Said relative = shell(  // paths start at the current folder
        "echo '{workload: {model: times.csv}, cluster: {devices: 2}}' | \"$PIPEWRIGHT\" simulate -");
    EXPECT_TRUE(contains(relative.out, "times, stages from a | b")) << relative.err;
    const Said endless = shell("\"$PIPEWRIGHT\" simulate /dev/stdin </dev/zero");
    EXPECT_EQ(endless.code, 2);
    EXPECT_TRUE(contains(endless.err, "'/dev/stdin' is larger than 64 MiB")) << endless.err;
}

TEST_F(CliFiles, NestedAndHugeJsonIsRefused) {
    const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
    fs::create_directory(file("results"));
    write("deep.json", R"({"traceEvents": [], "otherData": )" + deep + "}");
    write("instance.json", R"({"nodes": )" + deep + R"(, "edges": []})");
    write("results/a.json", R"({"points": )" + deep + "}");
    for (const char* arguments : {"validate deep.json", "plot deep.json -o x.html", "validate results",
                                  "search mlp.yaml --set 'workload={model: instance.json}' --set "
                                  "search.objective=piper"})
        EXPECT_TRUE(contains(error_of(arguments, 2), "nest more than 64 deep")) << arguments;
    write("results/a.json", R"({"points": [{"step_time_error": 1e999, "peak_memory_error": 0}]})");
    EXPECT_TRUE(contains(error_of("validate results", 2), "number overflow"));
    write("results/a.json", R"({"points": [{"step_time_error": 0, "step_time_error": 1, "peak_memory_error": 0}]})");
    EXPECT_TRUE(contains(error_of("validate results", 2), "is listed twice"));
    write("results/a.json", R"({"points": 3})");
    EXPECT_TRUE(contains(error_of("validate results", 2), "'points' is no list"));
    write("deep.json",
          R"({"otherData": {"schema_version": ")" + std::string(100'000, 'x') + R"("}, "traceEvents": []})");
    EXPECT_LT(error_of("validate deep.json", 2).size(), 1000u);
}

// A value of an unexpected type is reported with its file, not in the words of a library.
TEST_F(CliFiles, ResultsOfOtherTypesAreNamed) {
    fs::create_directory(file("results"));
    const auto with = [&](const std::string& key, const std::string& value) {
        std::map<std::string, std::string> point{{"step_time_error", "0.1"}, {"peak_memory_error", "0"},
                                                 {"waiting_error", "0.1"},   {"measured_samples_per_second", "1.0"},
                                                 {"name", "\"a\""},          {"predicted_samples_per_second", "1.1"}};
        std::string texts[2];
        for (std::string& text : texts) {
            for (const auto& [one, its] : point)
                text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", one, its);
            point[key] = value;
        }
        write("results/a.json", fmt::format(R"({{"points": [{{{0}}}, {{{1}}}, {{{0}}}]}})", texts[0], texts[1]));
    };
    for (const char* key : {"measured_samples_per_second", "predicted_samples_per_second"}) {
        with(key, "null");  // a number that was not finite
        EXPECT_TRUE(contains(run_well("validate results").out, "3 points")) << key;
        for (const char* value : {"\"fast\"", "true", "[]", "{}"}) {
            with(key, value);
            const std::string said = error_of("validate results", 2);
            EXPECT_TRUE(contains(said, fmt::format("'results/a.json': point 1 has no number '{}'", key))) << said;
        }
    }
    for (const char* key : {"name", "waiting_error", "label"})
        for (const char* value : {"null", "\"fast\"", "true", "[]", "{}", "1"}) {
            with(key, value);
            EXPECT_TRUE(contains(run_well("validate results").out, "3 points")) << key << value;
        }
    for (const char* value : {"null", "\"fast\"", "[]"}) {
        with("step_time_error", value);
        EXPECT_TRUE(contains(error_of("validate results", 2), "point 1 has no number 'step_time_error'")) << value;
    }
    std::string keys;
    for (int k = 0; k < 100'000; ++k)
        keys += fmt::format("\"k{}\": 0, ", k);
    write("results/a.json", "{" + keys + "\"points\": []}");
    EXPECT_TRUE(contains(error_of("validate results", 2), "an object has more than 1000 keys"));
}

TEST_F(CliFiles, ControlCharactersOfFilesStayText) {
    write("bad.yaml", "workload: {model: \"\\e]0;mine\\a\\x9b\"}\n\"\\e[31mkey\": 1\n");
    const std::string error = error_of("simulate bad.yaml", 2);
    EXPECT_TRUE(contains(error, "\\x1b]0;mine\\x07\\xc2\\x9b")) << error;
    EXPECT_EQ(error.find('\x1b'), std::string::npos);
    fs::create_directory(file("results"));
    write("results/a.json", R"({"points": [{"name": "\u001b[2J", "step_time_error": 0, "peak_memory_error": 0}]})");
    const std::string table = run_well("validate results").out;
    EXPECT_TRUE(contains(table, "\\x1b[2J")) << table;
    EXPECT_EQ(table.find('\x1b'), std::string::npos);
}

TEST_F(CliFiles, TracesOfNonsenseAreRefused) {
    run_well("simulate uniform.yaml --trace t.json");
    run_well("validate t.json");
    Json trace = Json::parse(read("t.json"));
    for (Json& event : trace["traceEvents"])
        if (event["ph"] == "X") {
            event["args"]["start_ns"] = 0;
            event["args"]["end_ns"] = std::int64_t{1} << 62;
        }
    write("t.json", trace.dump());
    for (const char* command : {"validate t.json", "plot t.json -o t.txt", "compare t.json t.json"})
        EXPECT_TRUE(contains(error_of(command, 2), "begins before the end of"));
}

TEST_F(CliFiles, ValidateRefusesALinkThatRunRefuses) {
    for (const char* command : {"validate", "run", "simulate"})
        EXPECT_TRUE(contains(error_of(std::string(command) + " mlp.yaml --set run.transport=link", 2),
                             "no cluster.link to emulate"));
    const std::string replicas =
        " mlp.yaml --set run.transport=link --set 'cluster.link={latency: 1 us}' --set "
        "pipeline.stages=1 --set 'pipeline.replicas=[2]'";
    for (const char* command : {"validate", "run"})
        EXPECT_TRUE(contains(error_of(command + replicas, 2), "summed by 2 devices"));
}

// Traces of other programs often are compressed.
TEST_F(CliFiles, TracesMayBeCompressed) {
    run_well("simulate uniform.yaml --trace t.json --set pipeline.micro_batches=64");
    run_well("simulate uniform.yaml --trace t.json.gz --set pipeline.micro_batches=64");
    const std::string compressed = read("t.json.gz");
    EXPECT_TRUE(compressed.starts_with("\x1f\x8b"));
    EXPECT_LT(compressed.size(), read("t.json").size() / 4);
    EXPECT_EQ(shell("gzip -dc t.json.gz").out, read("t.json"));
    run_well("validate t.json.gz");
    EXPECT_EQ(run_well("compare t.json t.json.gz").out, run_well("compare t.json t.json").out);
    run_well("plot t.json -o plain.txt");
    run_well("plot t.json.gz -o compressed.txt");
    EXPECT_EQ(read("compressed.txt"), read("plain.txt"));
    write("cut.json.gz", compressed.substr(0, compressed.size() / 2));
    write("damaged.json.gz", compressed.substr(0, 500) + "damaged" + compressed.substr(507));
    for (const char* command : {"validate", "compare t.json", "plot -o x.txt"}) {
        EXPECT_TRUE(contains(error_of(std::string(command) + " cut.json.gz", 2), "the file ends in the middle"));
        EXPECT_TRUE(contains(error_of(std::string(command) + " damaged.json.gz", 2), "cannot be decompressed at byte"));
    }
}

// Names come from files, and a row of a table stays on one line.
TEST_F(CliFiles, NamesOfSeveralLinesStayInTheirCells) {
    write("names.yaml",
          "workload: {model: uniform, stages: 2}\ncluster: {devices: [{name: \"a\\nb\\tc\"}, {name: \"d\\re\"}]}\n"
          "pipeline: {micro_batches: 2}\n");
    const std::string table = run_well("simulate names.yaml").out;
    EXPECT_TRUE(contains(table, "a\\x0ab\\x09c ")) << table;
    EXPECT_TRUE(contains(table, "d\\x0de ")) << table;
    EXPECT_TRUE(contains(run_well("validate names.yaml").out, "device a\\x0ab\\x09c: "));
}

}  // namespace pw
