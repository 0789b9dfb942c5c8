// Processes that share the work of a search. Each process searches the same config and gets the same result.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw {

using Packet = std::vector<std::byte>;

// A process alone has the defaults. All processes call exchange() equally often. It returns the packet of each process,
// by rank. The processes run the same program on machines of the same kind, so values are sent as they are in memory.
struct SearchTeam {
    int rank = 0, size = 1;
    std::function<std::vector<Packet>(const Packet& own)> exchange = {};

    bool is_own(std::size_t number) const {
        return number % static_cast<std::size_t>(size) == static_cast<std::size_t>(rank);
    }
};

template <class Value>
void put(Packet& packet, const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const std::size_t size = packet.size();
    packet.resize(size + sizeof value);
    std::memcpy(packet.data() + size, &value, sizeof value);
}

class PacketReader {
public:
    explicit PacketReader(const Packet& packet) : rest_(packet) {}
    bool at_end() const { return rest_.empty(); }
    template <class Value>
    Value take() {
        static_assert(std::is_trivially_copyable_v<Value>);
        assert(sizeof(Value) <= rest_.size());
        Value value{};
        std::memcpy(&value, rest_.data(), sizeof value);
        rest_ = rest_.subspan(sizeof value);
        return value;
    }

private:
    std::span<const std::byte> rest_;
};

// Sends what this process has found to all other processes, and calls `read` until everything that they found is read.
template <class Read>
void share(const SearchTeam& team, const Packet& own, Read read) {
    if (team.size == 1)
        return;
    const std::vector<Packet> all = team.exchange(own);
    for (int rank = 0; rank < team.size; ++rank)
        if (rank != team.rank)
            for (PacketReader reader(all[static_cast<std::size_t>(rank)]); !reader.at_end();)
                read(reader);
}

}  // namespace pw
