// The memory that the control groups of a process leave it, in folders laid out like the kernel's.
#include "workloads/machine_memory.h"

#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace pw {

namespace {

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

class ControlGroups : public testing::Test {
protected:
    std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
    void write(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories(file(name).parent_path());
        std::ofstream(file(name)) << text;
    }
    Bytes left() const { return memory_left_in_groups(file("root").string(), file("cgroup").string()); }

private:
    TemporaryFolder folder_;
};

}  // namespace

TEST_F(ControlGroups, LeaveTheLimitLessWhatIsUsed) {
    write("cgroup", "0::/jobs/one\n");
    EXPECT_EQ(left(), kUnlimited);
    write("root/jobs/one/memory.max", "max\n");
    EXPECT_EQ(left(), kUnlimited);
    write("root/jobs/one/memory.max", "1000\n");
    EXPECT_EQ(left(), 1000);  // the use cannot be read
    write("root/jobs/one/memory.current", "300\n");
    EXPECT_EQ(left(), 700);
    write("root/jobs/one/memory.stat", "anon 100\nfile 210\ninactive_file 150\nactive_file 50\nshmem 10\n");
    EXPECT_EQ(left(), 900);  // files can be dropped from the cache, shared memory cannot
    write("root/jobs/one/memory.current", "5000\n");
    EXPECT_EQ(left(), 0);
}

TEST_F(ControlGroups, CountWithTheGroupsThatTheyAreIn) {
    write("cgroup", "0::/jobs/one\n");
    write("root/jobs/one/memory.max", "1000\n");
    write("root/jobs/one/memory.current", "100\n");
    write("root/jobs/memory.max", "2000\n");
    write("root/jobs/memory.current", "1900\n");
    EXPECT_EQ(left(), 100);
    write("root/memory.max", "50\n");  // in a container the root has files, too
    EXPECT_EQ(left(), 50);
}

TEST_F(ControlGroups, OfVersionOneHaveOtherNames) {
    write("cgroup", "9:name=systemd:/\n8:pids:/jobs\n4:memory:/jobs\n0::/\n");
    write("root/memory/jobs/memory.limit_in_bytes", "1000\n");
    write("root/memory/jobs/memory.usage_in_bytes", "600\n");
    write("root/memory/jobs/memory.stat", "cache 1\ninactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20\n");
    write("root/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write("root/pids/jobs/memory.limit_in_bytes", "1\n");
    EXPECT_EQ(left(), 450);
}

TEST_F(ControlGroups, ThatCannotBeReadAreNoLimit) {
    EXPECT_EQ(left(), kUnlimited);
    write("cgroup", "nonsense\n0\n::\n0::\n");
    EXPECT_EQ(left(), kUnlimited);
    write("cgroup", "0::/jobs\n");
    write("root/jobs/memory.max", "-5\n");
    write("root/memory.max", "99999999999999999999999\n");
    EXPECT_EQ(left(), kUnlimited);
}

TEST_F(ControlGroups, TheSystemHasWhatItCallsAvailable) {
    write("meminfo", "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   2000 kB\nSwapFree:  9000 kB\n");
    EXPECT_EQ(memory_left_in_system(file("meminfo").string()), 2'048'000);
    const Bytes all = memory_left_in_system("/nowhere");
    EXPECT_GT(all, memory_left_in_system("/proc/meminfo"));
    EXPECT_LE(memory_of_machine(), all);
}

}  // namespace pw
