// Interrupted drawing leaves nothing: neither gnuplot nor files.
#include "tests/support/cli_rig.h"

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

}  // namespace pw
