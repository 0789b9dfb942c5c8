#include "cli/search_line.h"

#include "report/hooks.h"

#include <new>
#include <utility>

namespace pw {

SearchLine::SearchLine(std::function<bool()> is_stopping)
    : is_stopping_(std::move(is_stopping)),
      start_(std::chrono::steady_clock::now()),
      shown_(start_),
      clock_([this] { keep_showing(); }) {}

SearchLine::~SearchLine() {
    {
        const std::scoped_lock lock(mutex_);
        ended_ = true;
    }
    ends_.notify_all();
    clock_.join();
}

void SearchLine::show(const std::string& state) {
    const std::scoped_lock lock(mutex_);
    state_ = state;
    show_now();
}

void SearchLine::show_now() {
    shown_ = std::chrono::steady_clock::now();
    line_.show(with_time(stopping_ ? "stopping..." : state_, shown_ - start_));
}

void SearchLine::keep_showing() {
    constexpr std::chrono::milliseconds kLook{100};  // for a signal
    constexpr std::chrono::milliseconds kMostSilence{900};
    std::unique_lock lock(mutex_);
    while (!ends_.wait_for(lock, kLook, [&] { return ended_; }))
        try {
            const bool stops = !stopping_ && is_stopping_();
            stopping_ = stopping_ || stops;
            if (stops || std::chrono::steady_clock::now() - shown_ > kMostSilence)
                show_now();
        } catch (const std::bad_alloc&) {  // the search has taken all memory, and reports it
        }
}

}  // namespace pw
