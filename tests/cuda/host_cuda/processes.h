// Communicators whose ranks are in several processes of one machine. The process that made the id listens at a
// socket named after it. Every other process has one connection to it per communicator, and messages between two of
// these pass through it. When a connection ends, a process is gone, and all communicators of the world have an
// error.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace host_cuda {

struct World;

class Connection {
public:
    virtual ~Connection() = default;
    // Reports that an end has issued the first message from one rank to another.
    virtual void report_issued(int from, int to, int end) = 0;
    // Sends the n-th message; reports that it has been copied.
    virtual void report_sent(int from, int to, std::size_t number, const void* data, std::size_t bytes) = 0;
    virtual void report_copied(int from, int to, std::size_t number) = 0;
    virtual void report_complete(bool is_refused) = 0;  // all ranks have joined
    virtual void report_lost() = 0;
};

std::string new_world_name();                      // this process listens under it from now on
bool is_made_here(const std::string& world_name);  // whether this process made the id
// Joins a world whose id another process has made; null if no process listens there.
std::shared_ptr<Connection> join_far(const std::shared_ptr<World>& world, const std::string& world_name, int rank,
                                     const std::string& gpu);

}  // namespace host_cuda
