// The end of all ranks when one of them refuses the run, fails, is killed or stopped, and the restart after it.
#include "tests/ranks/under_mpi.h"

#include <chrono>
#include <cstdlib>
#include <string>

namespace pw {

TEST_P(UnderMpi, ProfilesEndOnAllRanksWhenOneFails) {
    const Said said = on_ranks(3, "profile four.yaml -o no/such/folder.yaml");
    EXPECT_NE(said.code, 0);
    EXPECT_NE(said.err.find("no/such"), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("error"), said.err.rfind("[rank 0/3] error") + 11) << said.err;
}

TEST_P(UnderMpi, AComparisonEndsOnAllRanksWhenOneFails) {
    const Said many = on_ranks(5, "compare four.yaml");
    EXPECT_NE(many.code, 0);
    EXPECT_NE(many.err.find("5 ranks were started for 4 devices"), std::string::npos) << many.err;
    ASSERT_EQ(on_ranks(2, "profile four.yaml -o profile.yaml").code, 0);
    const std::string profiled = "compare four.yaml --set cluster.profile=profile.yaml --set training.steps=4";
    const Said infinite = on_ranks(4, profiled + " --set training.learning_rate=1e6");
    EXPECT_NE(infinite.code, 0);
    EXPECT_NE(infinite.err.find("is not finite"), std::string::npos) << infinite.err;
    EXPECT_EQ(infinite.err.find("stopped"), std::string::npos) << infinite.err;
    const Said small = on_ranks(2, profiled + " --max-error 0%");
    EXPECT_NE(small.code, 0);
    EXPECT_NE(small.err.find("exceeds --max-error"), std::string::npos) << small.err;
    write("last.sh", R"(rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$@" --set training.seed=$rank
)");
    const Said differs = launch(fmt::format("-n 2 sh ./last.sh '{}' {}", GetParam().binary, profiled));
    EXPECT_NE(differs.code, 0);
    EXPECT_NE(differs.err.find("has another plan or config"), std::string::npos) << differs.err;
}

TEST_P(UnderMpi, RefusesWrongRuns) {
    const Said many = on_ranks(5, "run four.yaml");
    EXPECT_NE(many.code, 0) << many.err;
    EXPECT_NE(many.err.find("5 ranks were started for 4 devices"), std::string::npos) << many.err;
    const Said alone = on_ranks(2, "run four.yaml --set run.transport=threads");
    EXPECT_EQ(alone.code, 2) << alone.err;
    EXPECT_NE(alone.err.find("each would run all devices"), std::string::npos) << alone.err;
    write("differs.sh", R"(rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$1" run four.yaml --set training.seed=$rank
)");
    const Said differs = launch(fmt::format("-n 2 sh ./differs.sh '{}'", GetParam().binary));
    EXPECT_NE(differs.code, 0);
    EXPECT_NE(differs.err.find("has another plan or config"), std::string::npos) << differs.err;
    EXPECT_NE(differs.err.find("seed"), std::string::npos) << differs.err;
}

// If any rank is killed at any task, the others end, and one reports the lost rank.
TEST_P(UnderEveryMpi, ARankThatIsKilledIsNamed) {
    const std::string config = "four.yaml";
    OneIn some(is_mpich() ? 5 : 1);  // under MPICH no rank can name it
    for (const int rank : {0, 1, 3})
        for (const char* op : {"F", "SEND_F", "RECV_B", "U"}) {
            if (!some.picks())
                continue;
            if (rank == 3 && op[0] != 'F' && op[0] != 'U')  // it has neither of the others
                continue;
            const Said said = launch(fmt::format("{} -n 4 '{}' {} {} 1 {} 9", GetParam().no_clean_up,
                                                 GetParam().under_fire, config, rank, op));
            if (is_mpich()) {  // its launcher kills all ranks before they can report anything
                EXPECT_NE(said.code, 0);
                continue;
            }
            EXPECT_NE(said.err.find(fmt::format("rank {} (device {}", rank, rank)), std::string::npos) << said.err;
            EXPECT_NE(said.err.find("is gone"), std::string::npos) << op << said.err;
        }
}

// When the other ranks have detected the stopped one and ended, the launcher ends it.
TEST_P(UnderMpi, ARankThatIsStoppedIsNamed) {
    std::string config = read("four.yaml");
    write("short.yaml", config.replace(config.find("60 s"), 4, "1500 ms"));
    for (const int rank : {0, 1}) {
        const auto begun = std::chrono::steady_clock::now();
        const Said said = launch(fmt::format("-n 4 '{}' short.yaml {} 1 F 19", GetParam().under_fire, rank));
        EXPECT_NE(said.err.find(fmt::format("rank {} (device {}", rank, rank)), std::string::npos) << said.err;
        EXPECT_NE(said.err.find("is silent"), std::string::npos) << said.err;
        EXPECT_NE(said.code, 0);
        if (!is_mpich()) {
            EXPECT_EQ(said.code, 5);
        }
        EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));  // no hang
    }
}

TEST_P(UnderEveryMpi, AFailureOfOneEndsAll) {
    const Said said = on_ranks(4, "run four.yaml --set training.learning_rate=1e6");
    EXPECT_NE(said.code, 0);
    EXPECT_NE(said.err.find("is not finite"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("/4 stage "), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("is gone"), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("stopped"), std::string::npos) << said.err;
}

// In one run a rank is killed from outside, in another one the launcher: its ranks are then ended only by `launch`.
TEST_P(UnderMpi, LaunchResumesFromTheLatestCheckpoint) {
    write("launcher.sh", fmt::format(R"sh(for rank in $(cat "$victim.ranks" 2>/dev/null); do
    kill -0 "$rank" && echo "$rank" >>alive
done 2>/dev/null
echo $$ >launcher
shift 2
exec '{}' -n 4 sh ./rank.sh "$@"
)sh",
                                     GetParam().launcher));
    write("rank.sh", R"sh(echo $$ >>"$victim.ranks"
if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 2 ] && mkdir "$victim.killed" 2>/dev/null; then
    [ "$victim" = rank ] && echo $$ >doomed || cp launcher doomed
    (for i in $(seq 3000); do [ -e "$victim.kept/step-00000002/complete" ] && break; sleep 0.01; done
     kill -9 "$(cat doomed)") >/dev/null 2>&1 &
fi
exec "$@"
)sh");
    const Json whole = run_well("run four.yaml --steps 80 --json").json();
    binary_ = GetParam().binary;
    for (const char* victim : {"rank", "launcher"}) {
        setenv("victim", victim, 1);
        const Said said =
            run(fmt::format("launch -n 4 --launcher 'sh ./launcher.sh' four.yaml --steps 80 --json --checkpoint "
                            "{}.kept --checkpoint-every 1 --keep 1000",
                            victim));
        ASSERT_EQ(said.code, 0) << said.err;
        const std::string restart = fmt::format("restart 1 of 3, from {}.kept/step-000000", victim);
        EXPECT_NE(said.err.find(restart), std::string::npos) << said.err;
        EXPECT_EQ(said.err.find("restart 2"), std::string::npos) << said.err;
        EXPECT_EQ(said.json()["weights_hash"], whole["weights_hash"]);
        EXPECT_EQ(read("alive"), "") << victim;
    }
    unsetenv("victim");
}

}  // namespace pw
