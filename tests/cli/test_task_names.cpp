// Names of tasks in traces of other programs.
#include "tests/support/cli_rig.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <functional>
#include <string>

namespace pw {

namespace {

// Two micro-batches on two devices, F 10 ms, B 20 ms, without time between: 90 ms.
struct Slice {
    int device;
    bool forward;
    int microbatch, start;
};
constexpr Slice kSlices[] = {{0, true, 0, 0},  {0, true, 1, 10},  {1, true, 0, 10},  {1, false, 0, 20},
                             {1, true, 1, 40}, {1, false, 1, 50}, {0, false, 0, 40}, {0, false, 1, 70}};

class TaskNames : public Cli {
protected:
    using Name = std::function<std::string(const Slice&)>;

    static Json event_of(const Slice& slice, const std::string& name, int step) {
        return {{"ph", "X"},
                {"name", name},
                {"pid", slice.device},
                {"tid", 1},
                {"ts", 1000 * (slice.start + 100 * step)},
                {"dur", slice.forward ? 10'000 : 20'000}};
    }
    // A Chrome trace.
    void write_plain(const Name& name, int steps = 1) const {
        Json events = Json::array();
        for (int step = 0; step < steps; ++step)
            for (const Slice& slice : kSlices)
                events.push_back(event_of(slice, name(slice), step));
        write("plain.json", Json{{"traceEvents", events}}.dump());
    }
    // The files of torch.profiler.
    void write_kineto(const Name& name, int steps = 1, bool with_steps = false) const {
        for (const int rank : {0, 1}) {
            Json events = Json::array();
            for (int step = 0; step < steps; ++step) {
                for (const Slice& slice : kSlices)
                    if (slice.device == rank) {
                        events.push_back(event_of(slice, name(slice), step));
                        events.back()["cat"] = "user_annotation";
                        events.back()["args"] = {{"External id", 7}};
                    }
                if (with_steps)
                    events.push_back({{"ph", "X"},
                                      {"cat", "user_annotation"},
                                      {"name", fmt::format("ProfilerStep#{}", step)},
                                      {"tid", 1},
                                      {"ts", 100'000 * step},
                                      {"dur", 99'000}});
            }
            write(fmt::format("rank{}.json", rank),
                  Json{{"distributedInfo", {{"rank", rank}, {"world_size", 2}}}, {"traceEvents", events}}.dump());
        }
    }
    void expect_read(const std::string& files, int steps, bool notes) const {
        const Said said = run_well("import " + files + " -o trace.json");
        EXPECT_EQ(said.err.find("note: names have no number") != std::string::npos, notes) << said.err;
        expect_says(said.out, {"step 90.00 ms", fmt::format("micro-batches: 2, steps: {}", steps)});
        const Json json = run_well("compare trace.json --replay --json").json();
        EXPECT_EQ(json["replayed_ns"], 90'000'000);
    }
};

const char* word_of(const Slice& slice) { return slice.forward ? "Forward" : "backward"; }
char letter_of(const Slice& slice) { return slice.forward ? 'F' : 'B'; }

}  // namespace

TEST_F(TaskNames, HaveManyForms) {
    const Name forms[] = {
        [](const Slice& s) { return fmt::format("{}_{}", s.microbatch, word_of(s)); },
        [](const Slice& s) { return fmt::format("{}_step_{}", word_of(s), s.microbatch); },
        [](const Slice& s) { return fmt::format("Rank{} {} mb={}", s.device, word_of(s), s.microbatch); },
        [](const Slice& s) { return fmt::format("{}{}_s{}", letter_of(s), s.microbatch, s.device); },
        [](const Slice& s) { return fmt::format("{}W.{}", letter_of(s), s.microbatch); },
        [](const Slice& s) { return fmt::format("stage{}_{}_mb{}", s.device, letter_of(s), s.microbatch); },
        [](const Slice& s) { return fmt::format("{} {}", word_of(s), s.microbatch); },
        [](const Slice& s) { return fmt::format("{} pass {}", word_of(s), s.microbatch); },
        [](const Slice& s) { return fmt::format("{} chunk {}", word_of(s), s.microbatch); },
        [](const Slice& s) { return fmt::format("step 0 {} mb {} of 2", word_of(s), s.microbatch); },
    };
    for (const Name& form : forms) {
        SCOPED_TRACE(form(kSlices[4]));
        write_plain(form);
        expect_read("plain.json", 1, false);
        write_kineto(form);
        expect_read("rank0.json rank1.json", 1, false);
    }
}

TEST_F(TaskNames, WithoutNumbersAreCounted) {
    for (const char* form : {"{}", "{}_step", "{} pass"}) {
        const Name name = [&](const Slice& s) { return fmt::format(fmt::runtime(form), word_of(s)); };
        SCOPED_TRACE(form);
        for (const int steps : {1, 3}) {
            write_plain(name, steps);
            expect_read("plain.json", steps, true);
            write_kineto(name, steps, true);
            expect_read("rank0.json rank1.json", steps, true);
            write_kineto(name, steps);
            expect_read("rank0.json rank1.json", steps, true);
        }
    }
}

// A name around numbered ones is no task; a task that is named twice is refused.
TEST_F(TaskNames, AreOfTasksOnce) {
    write_plain([](const Slice& s) { return fmt::format("F{}", s.microbatch).replace(0, 1, 1, letter_of(s)); });
    Json file = Json::parse(read("plain.json"));
    file["traceEvents"].push_back({{"ph", "X"}, {"name", "forward_step"}, {"pid", 0}, {"ts", 0}, {"dur", 21'000}});
    write("plain.json", file.dump());
    expect_read("plain.json", 1, false);
    file["traceEvents"].push_back({{"ph", "X"}, {"name", "fwd mb 0"}, {"pid", 0}, {"ts", 1000}, {"dur", 9000}});
    write("plain.json", file.dump());
    expect_says(error_of("import plain.json -o trace.json", 2),
                {"F of stage 0 for micro-batch 0 begins before another run of it has ended", "name each task once"});
    write_plain([](const Slice& s) { return std::string(word_of(s)); });
    file = Json::parse(read("plain.json"));
    file["traceEvents"].push_back({{"ph", "X"}, {"name", "forward"}, {"pid", 0}, {"ts", 1000}, {"dur", 2000}});
    write("plain.json", file.dump());
    expect_says(error_of("import plain.json -o trace.json", 2), {"F of stage 0 begins before another one has ended"});
}

// `chunk` is a part of the model where there is a micro-batch, too: two devices have stages 0, 2 and 1, 3, or a V.
TEST_F(TaskNames, ChunksOfTheModelAreStages) {
    for (const bool in_v : {false, true}) {
        Json events = Json::array();
        const int places[2][4] = {{0, 1, 0, 1}, {0, 1, 1, 0}};
        int at = 0;
        const auto add = [&](const char* word, int stage, int duration) {
            events.push_back({{"ph", "X"},
                              {"name", fmt::format("{} mb 0 chunk {}", word, stage / 2)},
                              {"pid", places[in_v ? 1 : 0][stage]},
                              {"ts", 1000 * at},
                              {"dur", 1000 * duration}});
            at += duration;
        };
        for (const int stage : {0, 1, 2, 3})
            add("forward", stage, 1 + stage);
        for (const int stage : {3, 2, 1, 0})
            add("backward", stage, 2);
        write("plain.json", events.dump());
        expect_says(run_well("import plain.json -o trace.json").out, {"step 18.00 ms", "stages: 4, micro-batches: 1"});
        const Json json = run_well("compare trace.json --replay --explain --json").json();
        EXPECT_EQ(json["replayed_ns"], 18'000'000);
        for (const int stage : {0, 1, 2, 3})
            EXPECT_EQ(json["explanation"]["stages"][stage]["work_ns"], (3 + stage) * 1'000'000) << in_v << stage;
    }
}

// Names of a program's own, each in a plain trace and in the files of torch.profiler.
TEST_F(TaskNames, MatchPatterns) {
    struct Form {
        Name name;
        const char* patterns;
    };
    const auto word = [](const Slice& s) { return s.forward ? "vor" : "back"; };
    const Form forms[] = {
        {[&](const Slice& s) { return fmt::format("{}<{}>@{}", word(s), s.microbatch, s.device); },
         "--task 'F=vor<{mb}>@{stage}' --task 'b=back<{mb}>@{stage}'"},
        {[](const Slice& s) { return fmt::format("my layers/{}7 {}", word_of(s), s.microbatch); },
         "--task '*{op}7 {mb}'"},
        {[](const Slice& s) { return fmt::format("{}{} step 0", letter_of(s), s.microbatch); },
         "--task '{op}{mb} step {step}'"},
        {[](const Slice& s) { return fmt::format("{} of {} seq 9", word_of(s), 10 + s.microbatch); },
         "--task 'Forward of 1{mb} *' --task 'backward of 10*' --task 'backward of {mb} *'"},
    };
    for (const Form& form : forms) {
        SCOPED_TRACE(form.name(kSlices[4]));
        write_plain(form.name);
        const bool shifted = &form == &forms[3];
        if (shifted)  // a number is a whole row of digits, so "1{mb}" matches nothing
            expect_says(error_of(fmt::format("import plain.json -o trace.json {}", form.patterns), 2),
                        {"no name matches the pattern 'Forward of 1{mb} *'", "'Forward of 10 seq 9'"});
        else
            expect_read(fmt::format("plain.json {}", form.patterns), 1, false);
        if (shifted)
            continue;
        write_kineto(form.name);
        expect_read(fmt::format("rank0.json rank1.json {}", form.patterns), 1, false);
    }
}

// Three ranks of PyTorch 2.15 over gloo, with names that a person gave with record_function. Stage 1 has three layers,
// the remaining stages one.
TEST_F(TaskNames, OfAPersonAreRead) {
    const std::string files = fmt::format("{0}/rank2.json.gz {0}/rank0.json.gz {0}/rank1.json.gz",
                                          PIPEWRIGHT_SOURCE_DIR "/tests/cli/kineto/own-names");
    expect_says(error_of("import " + files + " -o trace.json", 2), {"'run layers 0 of part 2'", "import --task"});
    const Said said = run_well("import " + files +
                               " -o trace.json --task 'F=run layers {mb} of part {stage}' --task "
                               "'B=gradients {mb} of part {stage}'");
    expect_says(said.out, {"devices: 3, stages: 3, micro-batches: 4, steps: 2"});
    EXPECT_EQ(run_well("compare trace.json --replay --explain --json").json()["explanation"]["slowest_stage"], 1);
}

// A pattern replaces the names that are known.
TEST_F(TaskNames, OfPatternsAreTheOnlyTasks) {
    write_plain([](const Slice& s) { return fmt::format("{}{}", letter_of(s), s.microbatch); });
    Json file = Json::parse(read("plain.json"));
    Json others = Json::array();
    for (Json& event : file["traceEvents"]) {
        others.push_back(event);
        others.back()["name"] = "grab layer " + event["name"].get<std::string>();
        event["dur"] = 1;
    }
    file["traceEvents"].insert(file["traceEvents"].end(), others.begin(), others.end());
    write("plain.json", file.dump());
    expect_read("plain.json --task 'grab layer {op}{mb}'", 1, false);
    expect_read("plain.json --task '* {op}{mb}'", 1, false);
    expect_says(error_of("import plain.json -o trace.json --task '*{op} layer *'", 2),  // the "b" of "grab" is no word
                {"no name matches '*{op} layer *'"});
}

TEST_F(TaskNames, PatternsThatCannotBeReadAreNamed) {
    write_plain([](const Slice& s) { return fmt::format("{}{}", letter_of(s), s.microbatch); });
    const auto error = [&](const char* pattern) {
        return error_of(fmt::format("import plain.json -o trace.json --task '{}'", pattern), 2);
    };
    expect_says(error("fwd{nb}"), {"pattern 'fwd{nb}' of tasks", "no part of a name is called 'nb'", "{mb}, {stage}"});
    expect_says(error("fwd{mb"), {"a brace is not closed"});
    expect_says(error("fwd{mb}{stage}"), {"follow each other"});
    expect_says(error("fwd{mb}_{mb}"), {"it has a part twice"});
    expect_says(error("layers_{mb}"), {"it does not say which operation it is of", "'F=layers_{mb}'"});
    expect_says(error("F={op}{mb}"), {"it names the operation twice"});
    expect_says(error("fwd_then_bwd{mb}"), {"it does not say which operation"});
    expect_says(error("fwd_{mb}"), {"no name matches 'fwd_{mb}'; it has events 'F0', 'F1', 'B0', 'B1'"});
    write("pp_rank_0.json", R"({"1": {"fwd_start": [0.0], "fwd_end": [1.0]}})");
    expect_says(error_of("import pp_rank_0.json -o trace.json --task 'fwd{mb}'", 2),
                {"no names that a pattern could describe", "leave the pattern 'fwd{mb}' out"});
}

TEST_F(TaskNames, ThePublicOnesAreRead) {
    PIPEWRIGHT_NEED_DATA(folder, "field/29-own-annotations");
    const std::string files = fmt::format("{0}/rank0.json {0}/rank1.json {0}/rank2.json {0}/rank3.json", folder);
    const Json json = run_well("compare --replay --explain --json " + files).json();
    EXPECT_EQ(json["step_time_ns"], 372'000'000);
    EXPECT_EQ(json["replayed_ns"], 372'000'000);
    EXPECT_EQ(json["explanation"]["slowest_stage"], 2);
    PIPEWRIGHT_NEED_DATA(chunks, "field/30-micro-batch-and-chunk");
    EXPECT_EQ(run_well(fmt::format("compare {}/trace.json --replay --json", chunks)).json()["replayed_ns"], 15'000'000);
}

}  // namespace pw
