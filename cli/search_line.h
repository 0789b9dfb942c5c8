// The line on a terminal that says how far a search is.
#pragma once

#include "cli/streams.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace pw {

// Shows the latest state with the time that has passed, at least once per second, or that the search is about to stop.
class SearchLine {
public:
    explicit SearchLine(std::function<bool()> is_stopping);
    ~SearchLine();
    SearchLine(const SearchLine&) = delete;
    SearchLine& operator=(const SearchLine&) = delete;

    void show(const std::string& state);  // from any thread

private:
    void keep_showing();
    void show_now();

    const std::function<bool()> is_stopping_;
    const std::chrono::steady_clock::time_point start_;
    ProgressLine line_;
    std::mutex mutex_;  // of all below, and of the line
    std::condition_variable ends_;
    std::string state_ = "starting";
    bool ended_ = false, stopping_ = false;
    std::chrono::steady_clock::time_point shown_;
    std::thread clock_;
};

}  // namespace pw
