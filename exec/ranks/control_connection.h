// A line of its own between the ranks, beside MPI, over TCP: every rank keeps one to rank 0, which hears what all
// devices do. It tells a rank that is gone from one that is silent, and the failure of one to all, whatever MPI does
// meanwhile.
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

// The run ends since another rank has failed, which says why.
class StoppedByOthers : public Error {
public:
    using Error::Error;
};

class Line {
public:
    // What the line asks of a run, on its own thread.
    struct Watcher {
        std::function<void(Mail&)> tell_signs;         // what the devices of this rank do
        std::function<void(MailReader&)> hear_signs;   // what those of another rank do; on rank 0
        std::function<void(Ns passed)> look;           // on rank 0, about every `slice`; what it throws is a failure
        std::function<std::string(int)> describe;      // a rank: "rank 1 (host b; device 2 was in 2F1)"
        std::function<std::string(int)> last_tasks;    // lines of what its devices have done before
        std::function<void(std::exception_ptr)> fail;  // the run is to end; called once at most
    };

    // All ranks open their lines together. A rank that is not heard for `timeout` is silent. Throws Error (RunFailed)
    // when a rank does not reach rank 0.
    Line(Ranks& ranks, Ns timeout, Ns slice, Watcher watcher);
    void start();  // what is heard from here on is told
    ~Line();

    // The run is over: takes leave of the others, who then expect no more. A rank waits until rank 0 has, which writes
    // what all have made, or until that has failed.
    void leave();
    // Tells all other ranks that this one has failed: they stop. It returns when they have been told, or soon after.
    void tell_failure(const std::string& text, ExitCode code);
    // Waits until the others have gone, or soon after. A launcher ends all ranks as soon as one has ended: who has been
    // stopped lets the others speak first.
    void wait_for_others();

private:
    struct Peer {
        int connection = 0, rank = 0;
        bool is_open = true;
        Mail in = {}, out = {};  // bytes of frames that are not complete, or not sent
        Ns quiet = 0;            // since it was heard
        bool has_left = false;
    };
    enum class Frame : std::uint32_t { Signs, Failure, Leave };
    bool is_told() const;
    template <class Passed>
    void wait_until(Passed passed, Ns most);
    [[noreturn]] void fail_uncalled(int size);
    void keep();
    void serve(const std::vector<Connections::Entry>& entries);
    void beat();
    void hear(Peer& peer);
    void take(Peer& peer, Frame frame, const Mail& content);
    bool may_end(const Peer& peer) const;
    void lose(Peer& peer);
    void send(Peer& peer, Frame frame, const Mail& content);
    void flush(Peer& peer);
    void check_quiet(Ns passed);
    void fail(std::exception_ptr error);

    const int rank_;
    const Ns timeout_, slice_;
    const Watcher watcher_;
    const std::unique_ptr<Connections> connections_;
    Mutex mutex_;  // of the peers, and of what is done with their connections but waiting
    std::vector<Peer> peers_;
    bool failed_ = false, has_left_ = false;
    Ns closes_ = 0;  // when the thread has to end, once it has to
    Thread thread_;
};

}  // namespace pw
