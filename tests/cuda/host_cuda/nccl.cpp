// The calls of NCCL: the making of communicators, and the launch of groups. Two groups must not be launched on one
// device at a time, and two threads must not use one communicator at a time.
#include "tests/cuda/host_cuda/communicators.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>

using namespace host_cuda;

namespace {

std::atomic<const Job*> launching[kMaxDevices]{};

void end(const Job& job) {
    for (const int device : job.devices)
        launching[device].store(nullptr, std::memory_order_relaxed);
}

void end_one(Job* job) {
    if (job != nullptr && job->open.fetch_sub(1, std::memory_order_relaxed) == 1)
        end(*job);
}

// The group of a thread.
struct Group {
    int depth = 0;
    ncclResult_t failed = ncclSuccess;
    std::vector<ncclComm*> joining{};
    std::vector<std::pair<ncclComm*, Transfer>> transfers{};
};
thread_local Group group;
thread_local std::string last_error_text;

ncclResult_t fail(ncclResult_t code, std::string text) {
    last_error_text = std::move(text);
    if (group.depth > 0)
        group.failed = code;
    return code;
}

// A call that uses a communicator.
class Use {
public:
    explicit Use(ncclComm& comm) : comm_(comm), alone_(!comm.is_used.exchange(true, std::memory_order_relaxed)) {
        std::this_thread::yield();
    }
    ~Use() {
        if (alone_)
            comm_.is_used.store(false, std::memory_order_relaxed);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    bool is_alone() const { return alone_; }

private:
    ncclComm& comm_;
    const bool alone_;
};

// A pair between two processes is in progress until both ends have issued its first message.
bool is_connecting(const ncclComm& comm) {
    for (int peer = 0; peer < comm.world->ranks; ++peer)
        for (const bool sends : {true, false})
            if (comm.world->way[peer] && comm.issued[sends][peer] > 0 &&
                (sends ? comm.world->pair(comm.rank, peer) : comm.world->pair(peer, comm.rank)).ends !=
                    (Pair::kSender | Pair::kReceiver))
                return true;
    return false;
}

ncclResult_t state_of(const ncclComm& comm) {
    if (const ncclResult_t error = comm.error; error != ncclSuccess)
        return error;
    return comm.world->joined < comm.world->ranks || is_connecting(comm) ? ncclInProgress : ncclSuccess;
}

// Returns whether the communicator accepts a call for memory and a stream.
ncclResult_t check(ncclComm_t comm, std::initializer_list<const void*> memory, cudaStream_t stream) {
    if (comm == nullptr || !comm->usable || comm->aborted)
        return fail(ncclInvalidArgument, "no such communicator");
    const Use use(*comm);
    if (!use.is_alone())
        return fail(ncclInvalidUsage, "two threads use one communicator");
    CUstream_st* found = find_stream(stream);
    if (const ncclResult_t state = state_of(*comm); state != ncclSuccess && state != ncclInProgress)
        return fail(state, "the communicator has failed");
    if (state_of(*comm) == ncclInProgress || comm->job != nullptr)
        return fail(ncclInvalidArgument, "the communicator is not ready");
    if (found == nullptr || found->device != comm->device)
        return fail(ncclInvalidUsage, "the stream is of another device than the communicator");
    if (found->capture_status() != cudaStreamCaptureStatusNone)
        return fail(ncclInvalidUsage, "transfers are not captured here");
    for (const void* each : memory)
        if (!reaches(comm->device, each))
            return fail(ncclInvalidArgument, "the device cannot reach the buffer");
    return ncclSuccess;
}

ncclResult_t issue(bool sends, void* memory, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                   cudaStream_t stream) {
    if (const ncclResult_t checked = check(comm, {memory}, stream); checked != ncclSuccess)
        return checked;
    if (peer < 0 || peer >= comm->world->ranks || (type != ncclInt8 && type != ncclUint8))
        return fail(ncclInvalidArgument, "no such peer or type");
    ncclGroupStart();
    group.transfers.emplace_back(comm, Transfer{sends, peer, 0, memory, count, find_stream(stream)});
    return ncclGroupEnd();
}

ncclResult_t join(ncclComm_t* comm, int ranks, const ncclUniqueId& unique_id, int rank, bool blocking) {
    const std::string id(unique_id.internal, strnlen(unique_id.internal, sizeof unique_id.internal));
    *comm = join_world(id, ranks, rank, blocking);
    if (*comm == nullptr)
        return fail(ncclInvalidArgument, "another number of ranks, or the rank has joined already");
    group.joining.push_back(*comm);
    return ncclSuccess;
}

ncclResult_t wait_for_all(ncclComm& comm) {
    std::unique_lock lock(comm.world->mutex);
    comm.world->all_joined.wait(lock,
                                [&] { return comm.world->joined == comm.world->ranks || comm.error != ncclSuccess; });
    return comm.error == ncclSuccess ? ncclSuccess : fail(comm.error, "two ranks have the same device");
}

// Returns the calls by communicator, in the order of issue.
using Launches = std::vector<std::pair<ncclComm*, std::vector<Transfer>>>;
Launches launches_of(const Group& ended) {
    Launches launches;
    for (const auto& [comm, transfer] : ended.transfers) {
        const auto known = std::find_if(launches.begin(), launches.end(), [c = comm](auto& l) { return l.first == c; });
        (known == launches.end() ? launches.emplace_back(comm, std::vector<Transfer>{}) : *known)
            .second.push_back(transfer);
    }
    return launches;
}

bool meets_itself(const ncclComm& comm, const std::vector<Transfer>& transfers) {
    int open = 0;
    for (const Transfer& transfer : transfers)
        open += transfer.peer != comm.rank ? 0 : transfer.sends ? 1 : -1;
    return open == 0;
}

// Returns false if another group is being launched on one of the devices.
bool begin(Job& job, const Launches& launches) {
    for (const auto& [comm, transfers] : launches) {
        if (std::find(job.devices.begin(), job.devices.end(), comm->device) != job.devices.end())
            continue;
        const Job* none = nullptr;
        if (!launching[comm->device].compare_exchange_strong(none, &job, std::memory_order_relaxed))
            return false;
        job.devices.push_back(comm->device);
    }
    return true;
}

ncclResult_t launch(const Launches& launches) {
    if (launches.empty())
        return ncclSuccess;
    Job& job = launches.front().first->jobs.emplace_back();
    if (!begin(job, launches)) {
        end(job);
        return fail(ncclInvalidUsage, "host threads are racing to launch on one device");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(10));  // so that other threads run in between
    ncclResult_t result = ncclSuccess;
    for (const auto& [comm, transfers] : launches) {
        if (!comm->blocking) {
            job.open.fetch_add(1, std::memory_order_relaxed);
            comm->job.store(&job, std::memory_order_relaxed);
        }
        if (!start(*comm, transfers))
            result = fail(ncclUnhandledCudaError, "a stream is closed");
        else if (!comm->blocking)
            result = ncclInProgress;
        while (comm->blocking && state_of(*comm) == ncclInProgress)
            std::this_thread::yield();
    }
    if (job.open.load(std::memory_order_relaxed) == 0)
        end(job);
    return result;
}

bool finish(ncclComm_t comm) {
    if (comm == nullptr || !comm->usable)
        return false;
    for (const Launch& launch : comm->launches)
        launch.done.wait();
    return true;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error";
        case ncclSystemError:
            return "unhandled system error";
        case ncclInternalError:
            return "internal error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
    }
    return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_error_text.c_str(); }

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
    *uniqueId = {};
    const std::string name = new_world_name();
    std::copy(name.begin(), name.end(), uniqueId->internal);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
    if (config != nullptr && config->magic != 0xcafebeef)
        return fail(ncclInvalidArgument, "the configuration is not initialised");
    if (current_device() < 0 || rank < 0 || rank >= nranks)
        return fail(ncclInvalidArgument, "no such rank, or no device");
    ncclGroupStart();
    join(comm, nranks, commId, rank, config == nullptr || config->blocking != 0);
    return ncclGroupEnd();
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
    int before = 0;
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    cudaGetDevice(&before);
    ncclGroupStart();
    for (int rank = 0; rank < ndev; ++rank)
        if (cudaSetDevice(devlist == nullptr ? rank : devlist[rank]) != cudaSuccess)
            fail(ncclInvalidArgument, "no such device");
        else
            join(&comm[rank], ndev, id, rank, true);
    cudaSetDevice(before);
    return ncclGroupEnd();
}

// It also ends the group that its thread has begun.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
    const Use use(*comm);
    Job* job = comm->job.load(std::memory_order_relaxed);
    if (!use.is_alone() || (job != nullptr && job->thread != std::this_thread::get_id()))
        return fail(ncclInvalidUsage, "two threads use one communicator");
    *asyncError = state_of(*comm);
    if (job == nullptr)
        return ncclSuccess;
    if (std::exchange(job->in_progress, false)) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    end_one(comm->job.exchange(nullptr, std::memory_order_relaxed));
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    *count = comm->world->ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    return finish(comm) ? ncclSuccess : fail(ncclInvalidArgument, "no such communicator");
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!finish(comm))
        return fail(ncclInvalidArgument, "no such communicator");
    comm->usable = false;
    return ncclSuccess;
}

// Its streams continue without the data. The other ends wait until they are aborted, too. Any thread may call this.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->aborted = true;
    end_one(comm->job.exchange(nullptr, std::memory_order_relaxed));
    comm->world->ring();
    return ncclSuccess;
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return issue(true, const_cast<void*>(sendbuff), count, datatype, peer, comm, stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return issue(false, recvbuff, count, datatype, peer, comm, stream);
}

// Every rank gets the sum of all ranks.
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    if (const ncclResult_t checked = check(comm, {sendbuff, recvbuff}, stream); checked != ncclSuccess)
        return checked;
    if (datatype != ncclFloat32 || op != ncclSum || count == 0)
        return fail(ncclInvalidArgument, "sums of floats only");
    const auto ranks = static_cast<std::size_t>(comm->world->ranks);
    const auto parts = std::make_shared<std::vector<std::vector<float>>>(ranks, std::vector<float>(count));
    const std::size_t bytes = count * sizeof(float);
    ncclGroupStart();
    for (int peer = 0; peer < comm->world->ranks; ++peer)
        for (const bool sends : {true, false})
            group.transfers.emplace_back(
                comm, Transfer{sends, peer, 0, sends ? const_cast<void*>(sendbuff) : (*parts)[peer].data(), bytes,
                               find_stream(stream)});
    group.transfers.back().second.then = [parts, to = static_cast<float*>(recvbuff)] { add_in_ring(*parts, to); };
    return ncclGroupEnd();
}

ncclResult_t ncclGroupStart() {
    ++group.depth;
    return ncclSuccess;
}

// A non-blocking communicator returns ncclInProgress, as the real one may, although its work is already queued
// here.
ncclResult_t ncclGroupEnd() {
    if (group.depth == 0)
        return fail(ncclInvalidUsage, "no group has been started");
    if (--group.depth > 0)
        return group.failed;
    const Group ended = std::exchange(group, {});
    if (ended.failed != ncclSuccess)
        return ended.failed;
    ncclResult_t result = ncclSuccess;
    for (ncclComm* comm : ended.joining)
        if (const ncclResult_t joined = comm->blocking ? wait_for_all(*comm) : ncclInProgress; joined != ncclSuccess)
            result = joined;
    const Launches launches = launches_of(ended);
    for (const auto& [comm, transfers] : launches)
        if (!meets_itself(*comm, transfers))
            return fail(ncclInvalidUsage, "a rank sends to itself in one group and receives in another");
    const ncclResult_t launched = launch(launches);
    return launched == ncclSuccess ? result : launched;
}

}  // extern "C"
