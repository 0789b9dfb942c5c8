#include "exec/ranks/handshake.h"

#include "exec/system/threads.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <random>

namespace pw {

namespace {

constexpr Ns kMilli = 1'000'000;
constexpr Ns kAnswerTime = 2'000'000'000;    // for a whole handshake, at the calling rank
constexpr Ns kBetweenCalls = 20 * kMilli;    // of one rank
constexpr std::size_t kMostStrangers = 256;  // callers read at a time, in addition to one per rank

struct Answer {
    std::uint64_t number = 0;
    std::uint64_t rank = 0;
    std::uint64_t proof = 0;
};

enum class Side : std::uint64_t { Caller = 1, First = 2 };

std::uint64_t random_number() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

// The hash of the two random numbers. A recorded answer fits no other handshake, and the two sides have different
// answers.
std::uint64_t proof_of(Side side, const HandshakeKey& key, std::uint64_t challenge, const Answer& answer) {
    const std::uint64_t words[] = {static_cast<std::uint64_t>(side), challenge, answer.number, answer.rank};
    return keyed_hash(key, words);
}

int milliseconds_until(Ns time) {
    const Ns left = std::clamp<Ns>(time - clock_now(), 0, 1'000'000 * kMilli);
    return static_cast<int>((left + kMilli - 1) / kMilli);
}

bool is_ready(int socket, short events, Ns until) {
    pollfd entry{socket, events, 0};
    for (;;) {
        const int found = ::poll(&entry, 1, milliseconds_until(until));
        if (found == 1)
            return true;
        if (clock_now() >= until || (found < 0 && errno != EINTR))
            return false;
    }
}

// Sends a few bytes on a connection with an empty buffer: either they are taken at once or the connection has
// ended.
template <class Value>
bool send_value(int socket, const Value& value) {
    return ::send(socket, &value, sizeof value, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}

template <class Value>
std::optional<Value> receive_value(int socket, Ns until) {
    Value value{};
    for (std::size_t got = 0; got < sizeof value;) {
        if (!is_ready(socket, POLLIN, until))
            return std::nullopt;
        const ssize_t more = recv(socket, reinterpret_cast<char*>(&value) + got, sizeof value - got, 0);
        if (more <= 0 && !(more < 0 && (errno == EAGAIN || errno == EINTR)))
            return std::nullopt;
        got += static_cast<std::size_t>(std::max<ssize_t>(more, 0));
    }
    return value;
}

void send_at_once(int socket) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket call(const sockaddr_in& address, const HandshakeKey& key, int rank, Ns until) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open())
        return Socket();
    send_at_once(socket.number());
    if (connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
        errno != EINPROGRESS)
        return Socket();
    const auto challenge = receive_value<std::uint64_t>(socket.number(), until);
    if (!challenge)
        return Socket();
    Answer answer{random_number(), static_cast<std::uint64_t>(rank), 0};
    answer.proof = proof_of(Side::Caller, key, *challenge, answer);
    if (!send_value(socket.number(), answer) ||
        receive_value<std::uint64_t>(socket.number(), until) != proof_of(Side::First, key, *challenge, answer))
        return Socket();
    return socket;
}

// The connections to rank 0's port with an unfinished handshake.
class Callers {
public:
    Callers(int listener, const HandshakeKey& key, int size, Ns caller_time)
        : listener_(listener), key_(key), caller_time_(caller_time), missing_(size - 1) {
        accepted_.sockets.resize(static_cast<std::size_t>(size - 1));
    }

    bool all_called() const { return missing_ == 0; }

    void wait(Ns until) {
        polled_.assign(1, {listener_, POLLIN, 0});
        for (const Caller& caller : callers_)
            polled_.push_back({caller.socket.number(), POLLIN, 0});
        const Ns first = callers_.empty() ? until : std::min(until, callers_.front().until);
        if (::poll(polled_.data(), polled_.size(), milliseconds_until(first)) < 0)
            for (pollfd& entry : polled_)
                entry.revents = 0;
    }

    // Reads all bytes that have arrived, and closes the connections of callers that cannot be ranks or have used up
    // their time.
    void serve() {
        const Ns now = clock_now();
        for (std::size_t k = 0; k < callers_.size(); ++k) {
            Caller& caller = callers_[k];
            const bool is_over = polled_[k + 1].revents != 0 && !read(caller);
            if (is_over || (caller.socket.is_open() && now >= caller.until))
                reject(caller);
        }
        if (polled_.front().revents != 0)
            accept_some();
        std::erase_if(callers_, [](const Caller& caller) { return !caller.socket.is_open(); });
    }

    AcceptedRanks take() {
        accepted_.rejected += static_cast<int>(callers_.size());
        return std::move(accepted_);
    }

private:
    struct Caller {
        Socket socket;
        Ns until = 0;  // not earlier than the value of earlier callers
        std::uint64_t challenge = 0;
        std::array<std::byte, sizeof(Answer)> bytes = {};
        std::size_t got = 0;
    };

    void reject(Caller& caller) {
        caller.socket = Socket();
        ++accepted_.rejected;
    }

    // Returns false if the caller is not a rank.
    bool read(Caller& caller) {
        const ssize_t more =
            recv(caller.socket.number(), caller.bytes.data() + caller.got, caller.bytes.size() - caller.got, 0);
        if (more <= 0)
            return more < 0 && (errno == EAGAIN || errno == EINTR);
        caller.got += static_cast<std::size_t>(more);
        if (caller.got < caller.bytes.size())
            return true;
        const auto answer = std::bit_cast<Answer>(caller.bytes);
        if (answer.rank == 0 || answer.rank > accepted_.sockets.size() ||
            answer.proof != proof_of(Side::Caller, key_, caller.challenge, answer) ||
            !send_value(caller.socket.number(), proof_of(Side::First, key_, caller.challenge, answer)))
            return false;
        Socket& place = accepted_.sockets[answer.rank - 1];
        missing_ -= place.is_open() ? 0 : 1;
        place = std::exchange(caller.socket, Socket());
        return true;
    }

    // Accepts a limited number at a time, so that earlier callers are read in between. If there are too many, the
    // oldest are closed: a rank answers at once, and otherwise calls again.
    void accept_some() {
        for (int count = 0; count < 64; ++count) {
            Socket socket(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            const bool none_left = !socket.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS);
            if ((none_left || callers_.size() >= accepted_.sockets.size() + kMostStrangers) && !callers_.empty()) {
                reject(callers_.front());
                callers_.erase(callers_.begin());
            } else if (none_left) {
                sleep_for(kMilli);
            }
            if (!socket.is_open())
                return;
            send_at_once(socket.number());
            const std::uint64_t challenge = random_number();
            callers_.push_back({std::move(socket), clock_now() + caller_time_, challenge});
            if (!send_value(callers_.back().socket.number(), challenge))
                reject(callers_.back());
        }
    }

    const int listener_;
    const HandshakeKey key_;
    const Ns caller_time_;
    int missing_;
    AcceptedRanks accepted_;
    std::vector<Caller> callers_;  // in the order of their calls
    std::vector<pollfd> polled_;   // the listener and the callers
};

}  // namespace

Socket::~Socket() {
    if (number_ >= 0)
        ::close(number_);
}

HandshakeKey random_key() { return {random_number(), random_number()}; }

std::uint64_t keyed_hash(const HandshakeKey& key, std::span<const std::uint64_t> words) {
    std::uint64_t a = key[0] ^ 0x736f6d6570736575, b = key[1] ^ 0x646f72616e646f6d;
    std::uint64_t c = key[0] ^ 0x6c7967656e657261, d = key[1] ^ 0x7465646279746573;
    const auto rounds = [&](int count) {
        for (; count > 0; --count) {
            a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
            c += d, d = std::rotl(d, 16) ^ c;
            a += d, d = std::rotl(d, 21) ^ a;
            c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
        }
    };
    const auto take = [&](std::uint64_t word) {
        d ^= word;
        rounds(2);
        a ^= word;
    };
    for (const std::uint64_t word : words)
        take(word);
    take(std::uint64_t{words.size() * sizeof(std::uint64_t)} << 56);
    c ^= 0xff;
    rounds(4);
    return a ^ b ^ c ^ d;
}

AcceptedRanks accept_ranks(int listener, const HandshakeKey& key, int size, Ns timeout, Ns caller_time) {
    Callers callers(listener, key, size, caller_time);
    for (const Ns until = clock_now() + timeout; !callers.all_called() && clock_now() < until;) {
        callers.wait(until);
        callers.serve();
    }
    return callers.take();
}

Socket call_first_rank(std::span<const sockaddr_in> addresses, const HandshakeKey& key, int rank, Ns timeout) {
    const Ns until = clock_now() + timeout;
    for (;;) {
        for (const sockaddr_in& address : addresses)
            if (Socket socket = call(address, key, rank, std::min(until, clock_now() + kAnswerTime)); socket.is_open())
                return socket;
        if (clock_now() >= until)
            return Socket();
        sleep_for(kBetweenCalls);
    }
}

}  // namespace pw
