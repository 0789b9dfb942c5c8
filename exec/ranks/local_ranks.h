// The ranks of a single process: itself.
#pragma once

#include "exec/ranks/ranks.h"

#include <limits>

namespace pw {

// Rank 0 of 1. No message can be sent or received.
class LocalRanks : public Ranks {
public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    int largest_tag() const override { return std::numeric_limits<int>::max(); }
    const std::string& version() const override { return version_; }

    Ticket send(int to, int, std::span<const std::byte>, bool) override { refuse(to); }
    Ticket receive(int from, int, std::span<std::byte>) override { refuse(from); }
    bool done(Ticket) override { return true; }
    void progress() override {}
    void give_up() override {}

private:
    [[noreturn]] static void refuse(int rank) {
        fail_with(ExitCode::RunFailed, "there is no rank {}: this process runs alone", rank);
    }
    const std::string version_ = "one process";
};

}  // namespace pw
