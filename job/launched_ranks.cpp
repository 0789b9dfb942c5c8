#include "job/launched_ranks.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace pw {

namespace {

int number_in(const char* text) {
    int number = -1;
    if (text != nullptr)
        std::from_chars(text, text + std::string_view(text).size(), number);
    return number;
}

}  // namespace

// The environment variables of Open MPI, of MPICH and its relatives, and of Slurm.
LaunchedRanks launched_ranks() {
    constexpr std::pair<const char*, const char*> kNames[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    for (const auto& [rank_name, size_name] : kNames)
        if (const int rank = number_in(std::getenv(rank_name)), size = number_in(std::getenv(size_name));
            rank >= 0 && size > rank)
            return {rank, size};
    return {};
}

bool is_first_rank() { return launched_ranks().rank == 0; }

bool runs_on_ranks(const RunConfig& run) {
    return run.transport == RunConfig::Transport::Mpi ||
           (run.transport == RunConfig::Transport::Nccl && launched_ranks().size > 1);
}

}  // namespace pw
