// The ranks of MPI. One lock protects all calls of MPI, on any thread, since the library need not support
// concurrent calls.
#include "exec/ranks/ranks.h"
#include "exec/ranks/watchdog.h"
#include "workloads/error.h"

#ifdef PIPEWRIGHT_MPI

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace pw {

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 30;  // MPI counts bytes in an int

class MpiRanks : public Ranks {
public:
    MpiRanks() {
        int provided = 0;
        if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
            fail_with(ExitCode::RunFailed, "MPI does not start");
        if (provided < MPI_THREAD_SERIALIZED)
            fail_with(ExitCode::RunFailed, "this MPI allows calls from one thread only");
        MPI_Comm_dup(MPI_COMM_WORLD, &world_);
        MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
        MPI_Comm_rank(world_, &rank_);
        MPI_Comm_size(world_, &size_);
        void* bound = nullptr;
        int found = 0;
        MPI_Comm_get_attr(world_, MPI_TAG_UB, &bound, &found);
        largest_tag_ = found != 0 ? *static_cast<int*>(bound) : 32767;
        char text[MPI_MAX_LIBRARY_VERSION_STRING];
        int length = 0;
        MPI_Get_library_version(text, &length);
        version_ = std::string(text, static_cast<std::size_t>(length));
        version_ = version_.substr(0, version_.find_first_of(",\n"));
        std::replace(version_.begin(), version_.end(), '\t', ' ');
    }
    // After a failure other ranks may be gone, and MPI would wait for them.
    ~MpiRanks() override {
        if (given_up_)
            return;
        const Watchdog watchdog(20'000'000'000, "the run is done, but other ranks do not end");
        MPI_Comm_free(&world_);
        MPI_Finalize();
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    int largest_tag() const override { return largest_tag_; }
    const std::string& version() const override { return version_; }

    Ticket send(int to, int tag, std::span<const std::byte> bytes, bool waits) override {
        const std::lock_guard lock(mutex_);
        check_given_up();
        const Ticket ticket = take_slot(to, bytes.size(), false);
        for_pieces(bytes.size(), [&](std::size_t at, int count) {
            MPI_Request request = MPI_REQUEST_NULL;
            check((waits ? MPI_Issend : MPI_Isend)(bytes.data() + at, count, MPI_BYTE, to, tag, world_, &request), to);
            slots_[ticket].requests.push_back(request);
        });
        return ticket;
    }

    Ticket receive(int from, int tag, std::span<std::byte> bytes) override {
        const std::lock_guard lock(mutex_);
        check_given_up();
        const Ticket ticket = take_slot(from, bytes.size(), true);
        for_pieces(bytes.size(), [&](std::size_t at, int count) {
            MPI_Request request = MPI_REQUEST_NULL;
            check(MPI_Irecv(bytes.data() + at, count, MPI_BYTE, from, tag, world_, &request), from);
            slots_[ticket].requests.push_back(request);
        });
        return ticket;
    }

    bool done(Ticket ticket) override {
        const std::lock_guard lock(mutex_);
        check_given_up();
        Slot& slot = slots_[ticket];
        for (; slot.through < slot.requests.size(); ++slot.through) {
            int is_done = 0, count = 0;
            MPI_Status status;
            check(MPI_Test(&slot.requests[slot.through], &is_done, &status), slot.peer);
            if (is_done == 0)
                return false;
            if (slot.receives) {
                MPI_Get_count(&status, MPI_BYTE, &count);
                slot.came += static_cast<std::size_t>(count);
            }
        }
        free_.push_back(ticket);
        if (slot.receives && slot.came != slot.bytes)
            fail_with(ExitCode::RunFailed, "rank {} sent {} bytes where rank {} expects {}: do all run the same plan?",
                      slot.peer, slot.came, rank_, slot.bytes);
        return true;
    }

    void progress() override {
        const std::lock_guard lock(mutex_);
        int found = 0;
        if (!given_up_)
            (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_, &found, MPI_STATUS_IGNORE);
    }

    void give_up() override {
        const std::lock_guard lock(mutex_);
        given_up_ = true;
    }

private:
    struct Slot {
        std::vector<MPI_Request> requests;
        std::size_t through = 0;  // the number of completed requests
        int peer = 0;
        bool receives = false;
        std::size_t bytes = 0, came = 0;
    };

    void check_given_up() const {
        if (given_up_)
            throw Unreachable("stopped because another device failed");
    }

    Ticket take_slot(int peer, std::size_t bytes, bool receives) {
        if (free_.empty()) {
            free_.push_back(static_cast<Ticket>(slots_.size()));
            slots_.emplace_back();
        }
        const Ticket ticket = free_.back();
        free_.pop_back();
        Slot& slot = slots_[ticket];
        slot.requests.clear();
        slot.through = slot.came = 0;
        slot.peer = peer;
        slot.receives = receives;
        slot.bytes = bytes;
        return ticket;
    }

    template <class Act>
    static void for_pieces(std::size_t bytes, Act act) {
        std::size_t at = 0;
        do {
            const std::size_t piece = std::min(bytes - at, kPiece);
            act(at, static_cast<int>(piece));
            at += piece;
        } while (at < bytes);
    }

    void check(int code, int peer) const {
        if (code == MPI_SUCCESS)
            return;
        char text[MPI_MAX_ERROR_STRING];
        int length = 0;
        MPI_Error_string(code, text, &length);
        throw Unreachable(fmt::format("rank {} and rank {} cannot reach each other: {}", rank_, peer,
                                      std::string_view(text, static_cast<std::size_t>(length))));
    }

    MPI_Comm world_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1, largest_tag_ = 0;
    std::string version_;
    std::atomic<bool> given_up_{false};
    std::mutex mutex_;  // protects everything below, and MPI
    std::vector<Slot> slots_;
    std::vector<Ticket> free_;
};

}  // namespace

Ranks& join_ranks() {
    // MPI starts once in a process and exists until the process ends. The processes are the ranks of every job.
    static MpiRanks ranks;
    return ranks;
}

std::string ranks_status() { return "ready"; }

}  // namespace pw

#else

namespace pw {

Ranks& join_ranks() {
    fail_with(ExitCode::RunFailed,
              "several ranks need MPI, which is not in this build, such as that of a wheel\n  help: start one process, "
              "install the Debian package, or apt-get install openmpi-bin libopenmpi-dev and build again");
}

std::string ranks_status() { return "not in this build"; }

}  // namespace pw

#endif
