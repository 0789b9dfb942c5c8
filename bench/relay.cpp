// A slow link between two hosts: two TUN devices, and every packet from one goes into the other, one after the other at
// a rate and each after the delay. For bench/two_hosts.py on kernels without netem.
//
//     bench_relay MBIT_PER_SECOND DELAY_US DEVICE CORE DEVICE CORE
//
// makes the devices, prints a line on stdout when they are ready and carries packets until it is killed. Packets for a
// device are written on the core after its name: the receiving host's stack handles them there, as after a network
// card's interrupt. Packets stay as large as the sender's stack makes them for a card that cuts them (TSO), and their
// checksums are not computed.
#include "workloads/clock.h"
#include "workloads/error.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace pw {
namespace {

struct Way {
    int from, to;  // devices
    Ns delay;
    double ns_per_byte;
    int core;
};

struct Packet {
    Ns due;
    std::vector<char> bytes;
};

int open_device(const std::string& name) {
    const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0 ||
        ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0)
        fail("the TUN device '{}' cannot be made: {}", name, std::strerror(errno));
    return device;
}

void run_on(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0)
        std::fprintf(stderr, "not on core %d: %s\n", core, std::strerror(errno));
    prctl(PR_SET_TIMERSLACK, 1);  // ns; else 50 us
}

// Waits for packets of `device`, at most until the first of those under way is due.
void wait_for_packets(int device, const std::deque<Packet>& under_way) {
    pollfd packets{device, POLLIN, 0};
    timespec timeout{};
    if (!under_way.empty()) {
        const Ns left = std::max<Ns>(0, under_way.front().due - clock_now());
        timeout = {left / 1'000'000'000, left % 1'000'000'000};
    }
    ppoll(&packets, 1, under_way.empty() ? nullptr : &timeout, nullptr);
}

[[noreturn]] void carry(const Way& way) {
    run_on(way.core);
    std::array<char, 1 << 17> buffer;
    Ns is_free = 0;  // when the link can take the next packet
    for (std::deque<Packet> under_way;;) {
        wait_for_packets(way.from, under_way);
        for (ssize_t size; (size = read(way.from, buffer.data(), buffer.size())) > 0;) {
            is_free = std::max(is_free, clock_now()) + static_cast<Ns>(static_cast<double>(size) * way.ns_per_byte);
            under_way.push_back({is_free + way.delay, {buffer.data(), buffer.data() + size}});
        }
        for (; !under_way.empty() && under_way.front().due <= clock_now(); under_way.pop_front())
            if (write(way.to, under_way.front().bytes.data(), under_way.front().bytes.size()) < 0 &&
                errno != EIO)  // as long as the other device is not up
                std::fprintf(stderr, "a packet is lost: %s\n", std::strerror(errno));
    }
}

}  // namespace
}  // namespace pw

int main(int argc, char** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "usage: bench_relay MBIT_PER_SECOND DELAY_US DEVICE CORE DEVICE CORE\n");
        return 2;
    }
    try {
        const double ns_per_byte = 8000 / std::stod(argv[1]);
        const pw::Ns delay = std::stoll(argv[2]) * 1000;
        const int one = pw::open_device(argv[3]), other = pw::open_device(argv[5]);
        std::printf("ready\n");
        std::fflush(stdout);
        std::thread back(pw::carry, pw::Way{other, one, delay, ns_per_byte, std::stoi(argv[4])});
        pw::carry({one, other, delay, ns_per_byte, std::stoi(argv[6])});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
