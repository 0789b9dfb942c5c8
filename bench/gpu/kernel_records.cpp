#include "bench/gpu/kernel_records.h"

#include "exec/engine/mailbox.h"
#include "workloads/error.h"

#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kBuffer = std::size_t{8} << 20, kAlignment = 8;

// CUPTI's callbacks take no argument of ours.
std::mutex mutex;
std::vector<Record> records;
std::atomic<std::int64_t> dropped{0};

void check(CUptiResult status, const char* call) {
    const char* text = nullptr;
    if (status == CUPTI_SUCCESS)
        return;
    (void)cuptiGetResultString(status, &text);
    fail_with(ExitCode::RunFailed, "{}: {}", call, text == nullptr ? "unknown error" : text);
}

std::uint64_t CUPTIAPI now() { return static_cast<std::uint64_t>(clock_now()); }

void CUPTIAPI lend(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBuffer));
    *size = *buffer == nullptr ? 0 : kBuffer;
    *most_records = 0;  // as many as fit
}

template <class Activity>
void add(Record::Kind kind, const CUpti_Activity* any, std::string name) {
    const auto* activity = reinterpret_cast<const Activity*>(any);
    records.push_back({kind, std::uint64_t{activity->contextId} << 32 | activity->streamId,
                       static_cast<Ns>(activity->start), static_cast<Ns>(activity->end), std::move(name)});
}

void add(const CUpti_Activity* activity) {
    switch (activity->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
            const char* name = reinterpret_cast<const CUpti_ActivityKernel10*>(activity)->name;
            return add<CUpti_ActivityKernel10>(Record::Kind::Kernel, activity, name == nullptr ? "?" : name);
        }
        case CUPTI_ACTIVITY_KIND_MEMSET:
            return add<CUpti_ActivityMemset4>(Record::Kind::Fill, activity, "");
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            return add<CUpti_ActivityMemcpy6>(Record::Kind::Copy, activity, "");
        case CUPTI_ACTIVITY_KIND_MEMCPY2:
            return add<CUpti_ActivityMemcpyPtoP4>(Record::Kind::Copy, activity, "");
        default:
            return;
    }
}

void CUPTIAPI take_back(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t, std::size_t used) {
    {
        const std::lock_guard lock(mutex);
        CUpti_Activity* activity = nullptr;
        while (used > 0 && cuptiActivityGetNextRecord(buffer, used, &activity) == CUPTI_SUCCESS)
            add(activity);
    }
    std::size_t lost = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS)
        dropped += static_cast<std::int64_t>(lost);
    std::free(buffer);
}

}  // namespace

void start_recording() {
    check(cuptiActivityRegisterTimestampCallback(now), "cuptiActivityRegisterTimestampCallback");
    check(cuptiActivityRegisterCallbacks(lend, take_back), "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET,
                                          CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2})
        check(cuptiActivityEnable(kind), "cuptiActivityEnable");
}

void flush_records() { check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll"); }

std::vector<Record> take_records() {
    const std::lock_guard lock(mutex);
    std::ranges::stable_sort(records, {}, &Record::start);
    return std::exchange(records, {});
}

std::int64_t dropped_records() { return dropped; }

}  // namespace pw
