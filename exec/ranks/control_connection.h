// The control connection: a TCP connection of every rank to rank 0, independent of MPI. Ranks send rank 0 the state
// of their devices. It distinguishes a rank that is gone from a silent rank, and reports the failure of a rank to all
// ranks.
#pragma once

#include "exec/ranks/connections.h"
#include "exec/ranks/ranks.h"
#include "exec/system/threads.h"
#include "workloads/error.h"
#include "workloads/units.h"

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pw {

// The run ends because another rank has failed. The failed rank reports the reason.
class StoppedByOthers : public Error {
public:
    using Error::Error;
};

class ControlConnection {
public:
    // Called on the thread of the connection.
    struct Callbacks {
        std::function<void(Message&)> write_activity;       // the state of this rank's devices
        std::function<void(MessageReader&)> read_activity;  // the state of another rank's devices, on rank 0
        std::function<void(Ns passed)> check;               // on rank 0, about every `slice`. An exception is a failure
        std::function<std::string(int)> describe;           // a rank: "rank 1 (host b; device 2 was in 2F1)"
        std::function<std::string(int)> last_tasks;         // lines with the last tasks of a rank's devices
        std::function<void(std::exception_ptr)> fail;       // the run is to end (called once at most)
    };

    // All ranks call it together. A rank from which nothing arrives for `timeout` is silent. Throws Error
    // (RunFailed) if a rank does not reach rank 0.
    ControlConnection(Ranks& ranks, Ns timeout, Ns slice, Callbacks callbacks);
    void start();
    ~ControlConnection();

    // Called when the run is over: all ranks then expect nothing more from this rank. Ranks other than 0 wait until
    // rank 0, which writes the results of all ranks, has called it or has failed.
    void leave();
    // Sends the failure of this rank to all remaining ranks, which then stop. Returns when the failure is sent, after
    // a second at most.
    void send_failure(const std::string& text, ExitCode code);
    // Waits until the remaining ranks have ended, at most three seconds. A launcher ends all ranks as soon as a rank
    // has ended, so a rank stopped by other ranks must not end before they have reported the reason.
    void wait_for_others();

private:
    struct Peer {
        int connection = 0, rank = 0;
        bool is_open = true;
        Message in = {}, out = {};  // bytes of frames that are not yet complete, or not yet sent
        Ns silent_for = 0;          // the time since the last bytes from it
        bool has_left = false;
    };
    enum class Frame : std::uint32_t { Activity, Failure, Leave };
    bool all_sent() const;
    template <class Passed>
    void wait_until(Passed passed, Ns most);
    [[noreturn]] void fail_missing(int size);
    void run();
    void serve(const std::vector<Connections::Entry>& entries);
    void send_heartbeats();
    void receive(Peer& peer);
    void handle(Peer& peer, Frame frame, const Message& content);
    bool may_end(const Peer& peer) const;
    void handle_end(Peer& peer);
    void send(Peer& peer, Frame frame, const Message& content);
    void flush(Peer& peer);
    void check_silent(Ns passed);
    void fail(std::exception_ptr error);

    const int rank_;
    const Ns timeout_, slice_;
    const Callbacks callbacks_;
    const std::unique_ptr<Connections> connections_;
    Mutex mutex_;  // protects the peers, and all use of their connections except waiting
    std::vector<Peer> peers_;
    bool failed_ = false, has_left_ = false;
    Ns closes_ = 0;  // the time by which the thread has to end (0 until it has to)
    Thread thread_;
};

}  // namespace pw
