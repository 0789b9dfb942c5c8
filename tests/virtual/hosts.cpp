#include "tests/virtual/hosts.h"

#include "exec/engine/machine.h"
#include "exec/execute.h"
#include "exec/system/threads.h"
#include "tests/virtual/world.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <utility>

namespace pw {

Hosts* hosts = nullptr;

void end_rank(int rank, Ending ending) {
    World& world = World::here();
    ending.at = world.now;
    if (world.log)
        world.log(
            fmt::format("rank {} ends with {}: {}{}", rank, static_cast<int>(ending.code), ending.text, ending.hash));
    hosts->endings[static_cast<std::size_t>(rank)] = std::move(ending);
    hosts->network->end(rank, true);
    world.end_process(rank);
}

Ranks& join_ranks() { return hosts->network->ranks_of(World::here().process()); }
std::string ranks_status() { return "ready"; }

// All ranks get the address of rank 0, and call it.
std::unique_ptr<Connections> connect_ranks(Ranks& ranks, Ns timeout) {
    (void)broadcast(ranks, {});
    World& world = World::here();
    if (ranks.rank() != 0) {
        hosts->connected.push_back(ranks.rank());
        world.wake(&hosts->connected);
    }
    const auto all = static_cast<std::size_t>(ranks.size() - 1);
    for (const Ns until = clock_now() + timeout;
         ranks.rank() == 0 && hosts->connected.size() < all && clock_now() < until;)
        world.wait(&hosts->connected, until);
    return hosts->network->connect(ranks.rank(), ranks.rank() == 0 ? hosts->connected : std::vector<int>{0});
}

void end_process(const std::string& error, ExitCode code) {
    end_rank(World::here().process(), {.code = code, .text = error, .hash = {}, .stopped_after = {}});
    std::abort();  // never reached: the threads of the process do not continue
}

namespace {

class PlainMemory : public Memory {
public:
    explicit PlainMemory(Bytes bytes) : bytes_(static_cast<std::size_t>(bytes)) {
        data_ = bytes_.data();
        size_ = bytes;
    }

private:
    std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Memory> host_memory(Bytes bytes, const std::string&, bool) {
    return std::make_unique<PlainMemory>(bytes);
}
Bytes resident_memory() { return 0; }

std::vector<UsableCore> usable_cores() {
    std::vector<UsableCore> cores;
    for (int number = 0; number < hosts->cores; ++number)
        cores.push_back({number, 0});
    return cores;
}
int numa_node_of(std::string, const std::string&) { return -1; }
void pin_this_thread(const std::vector<int>&) {}
bool can_pin_this_thread(const std::vector<int>&) { return true; }
std::string clock_name() { return std::to_string(World::here().process()); }
std::string machine_name() { return "a virtual machine"; }

}  // namespace pw
