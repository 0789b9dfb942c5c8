#include "exec/ranks/slow_gather.h"

#include "workloads/clock.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// A piece is copied in less than a millisecond within a host.
constexpr std::size_t kGatheredPiece = std::size_t{1} << 20;
constexpr Ns kRest = 12'000'000;

}  // namespace

SlowGather::SlowGather(Ranks& ranks, Message own)
    : ranks_(ranks), own_(std::move(own)), other_(ranks.rank() == 0 ? 1 : 0) {
    if (ranks.rank() == 0)
        messages_.resize(static_cast<std::size_t>(ranks.size()));
    else
        size_ = own_.size();
}

// A received message grows piece by piece, so that its memory is not touched all at once.
std::span<std::byte> SlowGather::next_piece(Message& message) const {
    const std::size_t bytes = std::min(kGatheredPiece, size_ - done_);
    message.resize(std::max(message.size(), done_ + bytes));
    return std::span(message).subspan(done_, bytes);
}

void SlowGather::begin_piece() {
    const bool receives = ranks_.rank() == 0;
    std::span<std::byte> bytes = std::as_writable_bytes(std::span(&size_, 1));
    if (has_size_) {
        bytes = next_piece(receives ? messages_[static_cast<std::size_t>(other_)] : own_);
        under_way_ = bytes.size();
    }
    const int tag = has_size_ ? kStateContent : kStateSize;
    ticket_ = receives ? ranks_.receive(other_, tag, bytes) : ranks_.send(other_, tag, bytes, false);
    last_ = clock_now();
}

bool SlowGather::advance(bool urgent) {
    const bool receives = ranks_.rank() == 0;
    while (other_ < (receives ? ranks_.size() : 1)) {
        if (ticket_) {
            if (!ranks_.done(*ticket_))
                return false;
            ticket_.reset();
            if (!has_size_ && receives)
                messages_[static_cast<std::size_t>(other_)].reserve(size_);
            has_size_ = true;
            done_ += std::exchange(under_way_, 0);
        }
        if (has_size_ && done_ == size_) {
            ++other_;
            has_size_ = false;
            done_ = 0;
            continue;
        }
        if (!urgent && has_size_ && clock_now() - last_ < kRest)
            return false;
        begin_piece();
    }
    return true;
}

std::vector<Message> SlowGather::take_messages() { return std::move(messages_); }

}  // namespace pw
