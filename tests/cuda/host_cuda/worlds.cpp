// Worlds: ranks join them, in this and in other processes, and they fail when a process is gone.
#include "tests/cuda/host_cuda/communicators.h"

#include <algorithm>
#include <map>
#include <string>

namespace host_cuda {

namespace {

// All objects exist as long as the process: work of an aborted communicator may still be queued.
struct CommRegistry {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<World>> open;  // by id, until all have joined
    std::deque<ncclComm> communicators;
};

CommRegistry& comm_registry() {
    static auto* all = new CommRegistry;
    return *all;
}

// The functions below need the locks of the registry and of the world.
void set_error(const World& world, ncclResult_t error) {
    for (ncclComm& each : comm_registry().communicators)
        if (each.world.get() == &world && each.error == ncclSuccess)
            each.error = error;
}

// In the process that made the id.
void note_joined(World& world, const std::string& id, int rank, const std::string& gpu) {
    world.gpu_of[rank] = gpu;
    if (world.joined + 1 == world.ranks) {
        std::vector<std::string> gpus = world.gpu_of;
        std::sort(gpus.begin(), gpus.end());
        const bool is_refused = std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end();
        if (is_refused)
            set_error(world, ncclInvalidUsage);
        for (const auto& way : world.way)
            if (way)
                way->report_complete(is_refused);
        comm_registry().open.erase(id);
        world.all_joined.notify_all();
    }
    ++world.joined;
}

// In other processes: the maker reports when all have joined. The connection to the maker leads to all ranks except
// those that join here.
void join_maker(const std::shared_ptr<World>& world, const std::string& id, int rank, const std::string& gpu) {
    world->gpu_of[rank] = gpu;
    const std::shared_ptr<Connection> way = join_far(world, id, rank, gpu);
    if (!way)
        set_error(*world, ncclRemoteError);
    for (int other = 0; other < world->ranks; ++other)
        world->way[other] = world->gpu_of[other].empty() ? way : nullptr;
}

}  // namespace

ncclComm* join_world(const std::string& id, int ranks, int rank, bool blocking) {
    std::lock_guard lock(comm_registry().mutex);
    std::shared_ptr<World>& open = comm_registry().open[id];
    if (!open)
        open = std::make_shared<World>(ranks);
    const std::shared_ptr<World> world = open;
    std::lock_guard world_lock(world->mutex);
    if (world->ranks != ranks || !world->gpu_of[rank].empty())
        return nullptr;
    ncclComm& made = comm_registry().communicators.emplace_back();
    made.world = world;
    made.rank = rank;
    made.device = current_device();
    made.blocking = blocking;
    for (auto& numbers : made.issued)
        numbers.resize(ranks);
    char gpu[16] = "";
    cudaDeviceGetPCIBusId(gpu, sizeof gpu, made.device);
    if (is_made_here(id))
        note_joined(*world, id, rank, gpu);
    else
        join_maker(world, id, rank, gpu);
    return &made;
}

std::shared_ptr<World> join_from_afar(const std::string& name, int ranks, int rank, const std::string& gpu,
                                      const std::shared_ptr<Connection>& way) {
    std::lock_guard lock(comm_registry().mutex);
    std::shared_ptr<World>& open = comm_registry().open[name];
    if (!open)
        open = std::make_shared<World>(ranks);
    open->made_here = true;
    std::shared_ptr<World> world = open;
    std::lock_guard world_lock(world->mutex);
    if (rank < 0 || rank >= world->ranks || world->ranks != ranks || !world->gpu_of[rank].empty())
        return nullptr;
    world->way[rank] = way;
    note_joined(*world, name, rank, gpu);
    return world;
}

void complete(World& world, bool is_refused) {
    std::lock_guard lock(comm_registry().mutex);
    std::lock_guard world_lock(world.mutex);
    if (is_refused)
        set_error(world, ncclInvalidUsage);
    world.joined = world.ranks;
    world.all_joined.notify_all();
}

// Kernels that wait for the other ranks continue to wait until they are aborted.
void lose(World& world) {
    std::lock_guard lock(comm_registry().mutex);
    std::lock_guard world_lock(world.mutex);
    set_error(world, ncclRemoteError);
    for (const auto& way : world.way)
        if (way && world.made_here)
            way->report_lost();
    world.all_joined.notify_all();
}

}  // namespace host_cuda
