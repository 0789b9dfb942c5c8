// Interrupted drawing leaves nothing: neither gnuplot nor files.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace pw {

namespace {

class Drawing : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("cfg.yaml", "workload: {model: uniform, stages: 4, forward: 1 ms}\npipeline: {micro_batches: 8}\n");
        run_well("simulate cfg.yaml --trace t.json");
        for (const char* folder : {"bin", "temporary"})
            std::filesystem::create_directory(file(folder));
    }
    // Draws ten times and sends the signal as soon as gnuplot runs.
    void interrupt(const std::string& signal) const {
        write("interrupt.sh", fmt::format(R"sh(
export TMPDIR=$PWD/temporary PATH=$PWD/bin:$PATH
runs() {{ [ -d /proc/$1 ] && ! grep -q '^State:.*Z' /proc/$1/status; }}
for round in 1 2 3 4 5 6 7 8 9 10; do
    rm -f drawing
    env --default-signal=INT,TERM,HUP "$1" plot t.json -o x.svg 2>>err &
    for i in $(seq 3000); do [ -e drawing ] && break; sleep 0.01; done
    echo $round >>rounds
    kill -{} $!
    wait $!
    for i in $(seq 500); do runs $(cat drawing) || break; sleep 0.01; done
    if runs $(cat drawing); then echo gnuplot; fi >>left
    ls -A temporary >>left
done 2>>err
)sh",
                                          signal));
        for (const char* name : {"left", "rounds"})
            std::filesystem::remove(file(name));
        ASSERT_EQ(std::system(fmt::format("cd '{}' && sh interrupt.sh '{}'", file("").string(), binary_).c_str()), 0);
        EXPECT_EQ(read("rounds"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n") << signal << read("err");
        EXPECT_EQ(read("left"), "") << signal << read("err");
        EXPECT_FALSE(std::filesystem::exists(file("x.svg"))) << signal;
    }
};

}  // namespace

TEST_F(Drawing, EndsWithTheProgramOnEverySignal) {
    write("bin/gnuplot", "#!/bin/sh\necho $$ >drawing.new\nmv drawing.new drawing\nexec sleep 600\n");
    std::filesystem::permissions(file("bin/gnuplot"), std::filesystem::perms::owner_all);
    for (const char* signal : {"INT", "TERM", "HUP", "KILL"})
        interrupt(signal);
}

// The options of all commands that draw.
TEST_F(Drawing, TakesTitleWidthAndRange) {
    run_well("plot t.json -o part.txt --title 'the start' --range ..3ms");
    const std::string part = read("part.txt");
    EXPECT_TRUE(part.starts_with("the start\n\npredicted")) << part;
    EXPECT_NE(part.find("F2"), std::string::npos) << part;
    EXPECT_EQ(part.find("F3"), std::string::npos) << part;
    run_well("simulate cfg.yaml --plot part2.txt --title 'the start' --range '0 ms..3 ms'");
    EXPECT_EQ(read("part2.txt"), part);
    run_well("compare t.json t.json --plot both.txt --range 1ms..2ms");
    EXPECT_NE(read("both.txt").find("1 ms"), std::string::npos);
    for (const char* range : {"3ms..1ms", "1ms..1ms", "5", "..", "1..2", "a..3ms", "1ms...3ms"})
        expect_says(error_of(fmt::format("plot t.json -o a.txt --range {}", range), 2), {range, "1.2ms..3ms"});
    for (const char* width : {"0", "-5", "1e3", "wide", "20001"})
        expect_says(error_of(fmt::format("plot t.json -o a.txt --width={}", width), 2), {width, "1600"});
    for (const auto& [width, points] :
         {std::pair{"8.5cm", 241}, {"85mm", 241}, {"3.5in", 252}, {"252pt", 252}, {"252", 252}}) {
        run_well(fmt::format("plot t.json -o w.gp --figure column --width {}", width));
        expect_says(read("w.gp"), {fmt::format("size {},", points), "sans-serif,7"});
    }
    for (const char* width : {"8.5", "8.5 cm", "cm", "3cm", "nan", "inf", "9em"})
        expect_says(error_of(fmt::format("plot t.json -o a.txt --width='{}'", width), 2), {width, "8.5cm"});
    expect_says(error_of("plot t.json -o a.txt --range 1s..2s", 2), {"begins at 1.000 s"});
    expect_says(error_of("simulate cfg.yaml --title x", 2), {"--title", "--plot"});
    expect_says(
        error_of("simulate cfg.yaml --plot a.txt --range 1ms..2ms --set 'sweep={pipeline.micro_batches: [4, 8]}'", 2),
        {"--range is a part of a timeline"});
}

}  // namespace pw
