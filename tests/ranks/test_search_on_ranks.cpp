// Searches under a launcher: one for a transformer is shared among the ranks, another one is the first rank's alone.
#include "tests/ranks/under_mpi.h"
#include "tests/support/thoroughness.h"

#include <span>
#include <string>
#include <utility>

namespace pw {

namespace {

class SearchOnRanks : public UnderMpi {
protected:
    void SetUp() override {
        UnderMpi::SetUp();
        write("small.yaml", R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, memory: 24 GB, between: {link: ndr400, adapters: 4}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 16, micro_batch_sizes: [1, 2]}
)");
        write("llama.yaml", R"(
workload: {model: llama-3-70b, sequence_length: 8192}
cluster:  {hosts: 2, devices_per_host: 8, device: h100-sxm-80, between: {link: ndr400, adapters: 8}}
training: {precision: bf16, optimizer: adamw}
search:   {mini_batch: 64, tokens: 15e12, price: 2}
)");
        write("large.yaml", R"(
workload: {model: llama-3.1-405b, sequence_length: 8192}
cluster:  {hosts: 1024, devices_per_host: 8, device: h100-sxm-80, between: {link: ndr400, adapters: 8}}
training: {precision: bf16, optimizer: adamw}
search:   {mini_batch: 2048, schedules: [1f1b, auto]}
)");
    }

    // Starts ranks of `arguments`, and sends the signal to one of them some seconds later.
    Said on_ranks_with_signal(int ranks, int rank, const std::string& signal, const std::string& arguments,
                              double seconds = 1) {
        write("signal.sh", R"sh(wanted=$1 signal=$2 seconds=$3; shift 3
if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != "$wanted" ]; then
    exec "$@"
fi
"$@" &
sleep "$seconds"
kill -"$signal" $!
wait $!
)sh");
        return launch(fmt::format("{} -n {} sh ./signal.sh {} {} {} '{}' {}", GetParam().no_clean_up, ranks, rank,
                                  signal, seconds, GetParam().binary, arguments));
    }
};

}  // namespace

TEST_P(SearchOnRanks, SaysWhatOneProcessSays) {
    const std::pair<const char*, int> searches[] = {{"search small.yaml --top 100 -o best.yaml", 3},
                                                    {"search llama.yaml --top 4 -o best.yaml", 2}};
    for (const auto& [arguments, ranks] : std::span(searches).first(soaks() ? 2 : 1)) {
        const Said alone = run_well(arguments);
        const std::string best = read("best.yaml");
        EXPECT_NE(alone.out.find("plan of this search is faster"), std::string::npos) << alone.out;
        write("best.yaml", "");
        const Said shared = on_ranks(ranks, arguments);
        ASSERT_EQ(shared.code, 0) << arguments << " on " << ranks << ": " << shared.err;
        EXPECT_EQ(shared.out, alone.out) << arguments << " on " << ranks;
        // mpirun itself may have said something before.
        EXPECT_EQ(shared.err.substr(shared.err.find("note: ")), alone.err) << arguments << " on " << ranks;
        EXPECT_EQ(read("best.yaml"), best) << arguments << " on " << ranks;
    }
}

TEST_P(SearchOnRanks, FailsOnce) {
    const Said small = on_ranks(2, "search small.yaml --set cluster.memory='1 GB'");
    EXPECT_NE(small.code, 0);
    EXPECT_NE(small.err.find("no plan fits: "), std::string::npos) << small.err;
    EXPECT_EQ(small.err.find("no plan fits: "), small.err.rfind("no plan fits: ")) << small.err;
    const Said wrong = on_ranks(2, "search small.yaml --set search.tensor=[3]");
    EXPECT_NE(wrong.code, 0);
    EXPECT_NE(wrong.err.find("divides the 32 heads"), std::string::npos) << wrong.err;
}

TEST_P(SearchOnRanks, EndsWithTheTimeOnAllRanks) {
    Said said{};
    for (const char* seconds : {"2", "4", "8", "16", "32", "64"}) {  // slow machines have no plan yet
        said = on_ranks(2, fmt::format("search large.yaml --time-limit {} --json", seconds));
        if (said.code == 0)
            break;
    }
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["stopped_by"], "time limit");
    EXPECT_GT(said.json()["plans"].size(), 0u);
}

TEST_P(SearchOnRanks, IsStoppedByASignalToOneOfThem) {
    Said said{};
    for (const double seconds : {1, 4, 16}) {  // on a slow machine the signal comes before the search
        said = on_ranks_with_signal(2, 1, "TERM", "search large.yaml --json", seconds);
        if (!said.out.empty())
            break;
    }
    EXPECT_EQ(said.json()["stopped_by"], "caller") << said.err;
}

TEST_P(SearchOnRanks, ARankThatIsKilledIsNamed) {
    std::string said;
    for (const double seconds : {1, 3, 6}) {  // on a slow machine the ranks have not joined yet
        const Said ended = on_ranks_with_signal(3, 2, "KILL", "search large.yaml", seconds);
        if (is_mpich()) {  // its launcher kills all ranks before they can report anything
            EXPECT_NE(ended.code, 0);
            return;
        }
        said = ended.err;
        if (said.find("have not joined") == std::string::npos)
            break;
    }
    EXPECT_NE(said.find("rank 2 is gone"), std::string::npos) << said;
}

TEST_P(SearchOnRanks, OfLayersIsTheFirstRanksAlone) {
    const std::string arguments = "search four.yaml --set search.mini_batch=16 --set run.transport=mpi";
    const Said alone = run_well(arguments), ranks = on_ranks(3, arguments);
    EXPECT_EQ(ranks.code, 0) << ranks.err;
    EXPECT_EQ(ranks.out, alone.out);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SearchOnRanks, testing::ValuesIn(usual_mpis()), name_of_mpi);

}  // namespace pw
