// Ranks connect to rank 0 over TCP, whatever other programs send to its port.
#include "exec/ranks/connections.h"
#include "exec/ranks/handshake.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace pw {

namespace {

constexpr Ns kSeconds = 1'000'000'000;
constexpr HandshakeKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

class Port {
public:
    Port() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address_;
        EXPECT_EQ(bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address_), length), 0);
        EXPECT_EQ(listen(listener_.number(), SOMAXCONN), 0);
        EXPECT_EQ(getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&address_), &length), 0);
    }
    int listener() const { return listener_.number(); }
    const sockaddr_in& address() const { return address_; }
    Socket stranger() const {
        Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(connect(socket.number(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
        return socket;
    }

private:
    Socket listener_;
    sockaddr_in address_{};
};

void say(const Socket& socket, const std::string& text) {
    EXPECT_EQ(send(socket.number(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
}

// Reads until the other end closes, for at most ten seconds.
bool is_closed_by_other(const Socket& socket) {
    char bytes[64];
    for (pollfd entry{socket.number(), POLLIN, 0}; poll(&entry, 1, 10'000) == 1;)
        if (recv(socket.number(), bytes, sizeof bytes, 0) <= 0)
            return true;
    return false;
}

// Three ranks call while other programs are connected, which have sent the text of `say_first`.
void expect_all_ranks(int strangers, const std::function<void(const Socket&)>& say_first) {
    const Port port;
    std::vector<Socket> sockets;
    for (int k = 0; k < strangers; ++k)
        say_first(sockets.emplace_back(port.stranger()));
    std::vector<std::thread> ranks;
    std::array<bool, 3> reached{};
    for (int rank = 1; rank <= 3; ++rank)
        ranks.emplace_back([&, rank] {
            const Socket socket = call_first_rank(std::span(&port.address(), 1), kKey, rank, 20 * kSeconds);
            reached[static_cast<std::size_t>(rank - 1)] = socket.is_open();
        });
    const AcceptedRanks accepted = accept_ranks(port.listener(), kKey, 4, 20 * kSeconds);
    for (std::thread& rank : ranks)
        rank.join();
    for (std::size_t k = 0; k < reached.size(); ++k)
        EXPECT_TRUE(reached[k] && accepted.sockets.at(k).is_open()) << k;
    EXPECT_LE(accepted.rejected, strangers);
}

}  // namespace

// The reference vectors of the authors' implementation: key 00 01 .. 0f, the bytes 00 01 .. of 0, 8 and 16 bytes.
TEST(Handshake, HashIsSipHash) {
    const std::uint64_t words[] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    EXPECT_EQ(keyed_hash(kKey, {}), 0x726fdb47dd0e0e31u);
    EXPECT_EQ(keyed_hash(kKey, std::span(words, 1)), 0x93f5f5799a932462u);
    EXPECT_EQ(keyed_hash(kKey, words), 0x3f2acc7f57c29bdbu);
}

TEST(Handshake, RanksAreAcceptedWhileOtherProgramsAreSilent) {
    expect_all_ranks(1, [](const Socket&) {});
    expect_all_ranks(300, [](const Socket&) {});  // more than rank 0 reads at a time
}

TEST(Handshake, RanksAreAcceptedWhateverOtherProgramsSend) {
    expect_all_ranks(1, [](const Socket& socket) { say(socket, "SSH-2.0\r\n"); });
    expect_all_ranks(1, [](const Socket& socket) { say(socket, "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"); });
    expect_all_ranks(3, [](const Socket& socket) { say(socket, std::string(65'536, '\xff')); });
    expect_all_ranks(3, [](const Socket& socket) { shutdown(socket.number(), SHUT_WR); });
}

TEST(Handshake, RanksAreAcceptedWhileAnotherProgramSendsByteByByte) {
    std::thread drip;
    expect_all_ranks(1, [&](const Socket& socket) {
        drip = std::thread([own = dup(socket.number())] {
            const Socket open(own);
            for (int k = 0; k < 12; ++k) {
                (void)send(own, "x", 1, MSG_NOSIGNAL);
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
        });
    });
    drip.join();
}

// The time limit is for the whole handshake, not for each byte.
TEST(Handshake, ASlowCallerIsClosed) {
    const Port port;
    const Socket silent = port.stranger(), slow = port.stranger();
    std::thread drip([&] {
        for (int k = 0; k < 20; ++k) {
            (void)send(slow.number(), "x", 1, MSG_NOSIGNAL);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    });
    const AcceptedRanks accepted = accept_ranks(port.listener(), kKey, 2, kSeconds, 100'000'000);
    drip.join();
    EXPECT_FALSE(accepted.sockets.at(0).is_open());
    EXPECT_EQ(accepted.rejected, 2);
    EXPECT_TRUE(is_closed_by_other(silent));
    EXPECT_TRUE(is_closed_by_other(slow));
}

TEST(Handshake, AnotherKeyIsRejectedByBothEnds) {
    const Port port;
    bool reached = true;
    std::thread other([&] {
        reached = call_first_rank(std::span(&port.address(), 1), {1, 2}, 1, kSeconds / 2).is_open();
    });
    const AcceptedRanks accepted = accept_ranks(port.listener(), kKey, 2, kSeconds / 2);
    other.join();
    EXPECT_FALSE(reached);
    EXPECT_FALSE(accepted.sockets.at(0).is_open());
    EXPECT_GE(accepted.rejected, 1);
}

TEST(Handshake, ARankThatDoesNotExistIsRejected) {
    for (const int rank : {0, 2, -1, 1'000'000'000}) {
        const Port port;
        std::thread caller([&] {
            EXPECT_FALSE(call_first_rank(std::span(&port.address(), 1), kKey, rank, kSeconds / 5).is_open()) << rank;
        });
        EXPECT_FALSE(accept_ranks(port.listener(), kKey, 2, kSeconds / 5).sockets.at(0).is_open()) << rank;
        caller.join();
    }
}

// The rank's first connection may have failed without rank 0 detecting it.
TEST(Handshake, ARankThatCallsAgainReplacesItsFirstConnection) {
    const Port port;
    std::thread caller([&] {
        const Socket first = call_first_rank(std::span(&port.address(), 1), kKey, 1, 10 * kSeconds);
        const Socket second = call_first_rank(std::span(&port.address(), 1), kKey, 1, 10 * kSeconds);
        EXPECT_TRUE(first.is_open() && second.is_open());
        EXPECT_TRUE(is_closed_by_other(first));
        const Socket other = call_first_rank(std::span(&port.address(), 1), kKey, 2, 10 * kSeconds);
        say(second, "second");
        EXPECT_TRUE(other.is_open());
    });
    const AcceptedRanks accepted = accept_ranks(port.listener(), kKey, 3, 10 * kSeconds);
    caller.join();
    char text[7] = {};
    EXPECT_EQ(recv(accepted.sockets.at(0).number(), text, 6, 0), 6);
    EXPECT_STREQ(text, "second");
}

// Another program answers at the first address, as a service of the rank's own host may do; rank 0 answers at the
// second one.
TEST(Handshake, ACallerTriesTheNextAddressIfAnotherProgramAnswers) {
    const Port stranger, port;
    const sockaddr_in addresses[] = {stranger.address(), port.address()};
    std::string heard(64, '\0');
    std::thread answer([&] {
        pollfd entry{stranger.listener(), POLLIN, 0};
        ASSERT_EQ(poll(&entry, 1, 10'000), 1);
        const Socket socket(accept(stranger.listener(), nullptr, nullptr));
        say(socket, "220 ready and waiting for your message\r\n");
        std::size_t got = 0;
        for (ssize_t more = 1; more > 0; got += static_cast<std::size_t>(std::max<ssize_t>(more, 0)))
            more = recv(socket.number(), heard.data() + got, heard.size() - got, 0);
        heard.resize(got);
    });
    std::thread caller([&] { EXPECT_TRUE(call_first_rank(addresses, kKey, 1, 10 * kSeconds).is_open()); });
    EXPECT_TRUE(accept_ranks(port.listener(), kKey, 2, 10 * kSeconds).sockets.at(0).is_open());
    answer.join();
    caller.join();
    for (const std::uint64_t half : kKey)  // the key itself must not be sent
        EXPECT_EQ(heard.find(std::string(reinterpret_cast<const char*>(&half), sizeof half)), std::string::npos);
}

// The number of values in a message is checked against its size.
TEST(Message, AListThatIsLongerThanItsMessageIsRefused) {
    for (const std::size_t count : {std::size_t{2}, std::size_t{1} << 40, std::size_t{1} << 61, ~std::size_t{0}}) {
        Message message;
        write(message, count);
        write(message, std::uint64_t{7});
        EXPECT_THROW(MessageReader(message).read_all<std::uint64_t>(), Error) << count;
    }
}

}  // namespace pw
