// Runs a program on ranks under every installed MPI, in a folder of its own.
#pragma once

#include "tests/support/cli_rig.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace pw {

struct Mpi {
    const char* name;
    const char* launcher;
    const char *binary, *under_fire;  // the programs
    const char* no_clean_up;          // the launcher leaves the other ranks alone when one ends
};
inline const Mpi kMpis[] = {
    {"TheBuilds", PIPEWRIGHT_MPIRUN, PIPEWRIGHT_BINARY, UNDER_FIRE, "--enable-recovery"},
#ifdef PIPEWRIGHT_BINARY_MPICH
    {"Mpich", PIPEWRIGHT_MPIRUN_MPICH, PIPEWRIGHT_BINARY_MPICH, UNDER_FIRE_MPICH, "-disable-auto-cleanup"},
#endif
};

// Returns the MPI that the build found; with PIPEWRIGHT_SOAK=1 every one that is here.
inline std::vector<Mpi> usual_mpis() { return {std::begin(kMpis), soaks() ? std::end(kMpis) : std::begin(kMpis) + 1}; }
inline std::string name_of_mpi(const testing::TestParamInfo<Mpi>& mpi) { return mpi.param.name; }

class MpiRig : public Cli, public testing::WithParamInterface<Mpi> {
protected:
    void SetUp() override {
        Cli::SetUp();
        // Open MPI refuses root and more ranks than cores unless it is told otherwise; MPICH does not.
        for (const char* variable :
             {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
            setenv(variable, "1", 1);
        // Open MPI otherwise looks for networks, launchers of clusters, and for GPUs on the displays of an X server,
        // whose name it resolves: a launch then takes four times as long, and seconds without /etc/hosts.
        for (const auto& [variable, value] :
             {std::pair("OMPI_MCA_plm", "isolated"), std::pair("OMPI_MCA_pml", "ob1"),
              std::pair("OMPI_MCA_btl", "self,vader"), std::pair("HWLOC_COMPONENTS", "-gl,-opencl,-pci")})
            setenv(variable, value, 1);
        // Launches that begin at the same time make one folder of sessions, and the second one may fail.
        setenv("OMPI_MCA_orte_tmpdir_base", file("").c_str(), 1);
        setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);  // else a launch that fails ends a second later
        setenv("UCX_LOG_LEVEL", "fatal", 1);  // MPICH's UCX writes its errors to stdout, as without /sys
        setenv("PIPEWRIGHT_CUDA_MODULE", CUDA_ON_HOST, 1);
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);  // which containers refuse
    }

    // Runs the program of this MPI on `ranks` ranks.
    Said on_ranks(int ranks, const std::string& arguments) {
        return launch(fmt::format("-n {} '{}' {}", ranks, GetParam().binary, arguments));
    }
    static bool is_mpich() { return GetParam().name == std::string("Mpich"); }
    Said launch(const std::string& arguments) {
        const std::string before = std::exchange(binary_, GetParam().launcher);
        Said said = run(arguments);
        binary_ = before;
        return said;
    }

    // With PIPEWRIGHT_SOAK=1 everything is tried on all of these numbers of ranks. Else under the first MPI the calls
    // of a test take the numbers in turn, from the last on, and under the others each takes the last.
    std::vector<int> tried(const std::vector<int>& numbers) {
        if (soaks())
            return numbers;
        const std::size_t turn = is_mpich() ? 0 : turn_++ % numbers.size();
        return {numbers[numbers.size() - 1 - turn]};
    }
    // On ranks it may have `more` settings, which must not change a bit.
    void expect_same(const std::string& arguments, const std::vector<int>& numbers = {1, 2, 3, 4},
                     const std::string& more = "") {
        const Json alone = run_well("run " + arguments + " --json").json();
        for (const int ranks : tried(numbers)) {
            const Said said = on_ranks(ranks, "run " + arguments + more + " --json");
            ASSERT_EQ(said.code, 0) << arguments << " on " << ranks << '\n' << said.err;
            const Json json = said.json();
            for (const char* key : {"weights_hash", "losses", "gradient_norms"})
                EXPECT_EQ(json[key], alone[key]) << arguments << " on " << ranks << ": " << key;
        }
    }

private:
    std::size_t turn_ = 0;
};

}  // namespace pw
