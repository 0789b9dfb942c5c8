// Communicators whose ranks are in several processes of one machine. The process that made the id listens at a socket
// named after it; every other one has one connection to it per communicator, and what two others tell each other goes
// through it. When a connection ends, a process is gone: all communicators of the world have an error.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace host_cuda {

struct World;

class Connection {
public:
    virtual ~Connection() = default;
    // An end has issued the first message from one rank to another.
    virtual void tell_issued(int from, int to, int end) = 0;
    // The n-th message; and that it has been copied.
    virtual void tell_sent(int from, int to, std::size_t number, const void* data, std::size_t bytes) = 0;
    virtual void tell_copied(int from, int to, std::size_t number) = 0;
    virtual void tell_complete(bool is_refused) = 0;  // all ranks have joined
    virtual void tell_lost() = 0;
};

std::string new_world_name();                      // of this process, which listens from now on
bool is_made_here(const std::string& world_name);  // the id
// Joins a world that another process has made the id of; null when nobody listens there.
std::shared_ptr<Connection> join_far(const std::shared_ptr<World>& world, const std::string& world_name, int rank,
                                     const std::string& gpu);

}  // namespace host_cuda
