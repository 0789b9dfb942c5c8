#include "exec/ranks/measure_link.h"

#include "workloads/clock.h"
#include "workloads/median.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw {

namespace {

constexpr int kTag = kFirstTag;  // no plan runs meanwhile
constexpr Bytes kSizes[] = {1, Bytes{16} << 10, Bytes{64} << 10, Bytes{256} << 10, Bytes{1} << 20, Bytes{4} << 20};

void pass(Ranks& ranks, int other, Mail& message, bool sends) {
    const std::span<std::byte> bytes(message.data(), message.size());
    const Ranks::Ticket ticket = sends ? ranks.send(other, kTag, bytes, false) : ranks.receive(other, kTag, bytes);
    wait_for(ranks, std::span(&ticket, 1));
}

// Half of a round trip; the median of many.
Ns one_way(Ranks& ranks, int other, Bytes bytes, bool asks) {
    const int rounds = bytes < (Bytes{1} << 20) ? 100 : 20;
    Mail message(static_cast<std::size_t>(bytes));
    std::vector<Ns> times;
    for (int round = 0; round < rounds; ++round) {
        const Ns start = clock_now();
        pass(ranks, other, message, asks);
        pass(ranks, other, message, !asks);
        times.push_back((clock_now() - start) / 2);
    }
    return upper_median(std::move(times));
}

}  // namespace

Link fitted_link(Ns smallest, const std::vector<SizedTime>& times) {
    double weights = 0, sizes = 0, all = 0, squares = 0, products = 0;
    for (const auto& [bytes, time] : times) {
        const double weight = 1 / (static_cast<double>(time) * static_cast<double>(time)),
                     size = static_cast<double>(bytes), over = static_cast<double>(time - smallest);
        weights += weight;
        sizes += weight * size;
        all += weight * over;
        squares += weight * size * size;
        products += weight * size * over;
    }
    const double slope = (weights * products - sizes * all) / (weights * squares - sizes * sizes);
    if (!(slope > 0))
        return {smallest};
    const double intercept = std::max(0.0, (all - slope * sizes) / weights);
    return {smallest, 1e9 / slope, static_cast<Bytes>(std::llround(intercept / slope))};
}

Link measure_link(Ranks& ranks) {
    const int last = ranks.size() - 1, rank = ranks.rank();
    Mail told;
    if (rank == 0 || rank == last) {
        Ns smallest = 0;
        std::vector<SizedTime> times;
        for (const Bytes bytes : kSizes) {
            const Ns time = one_way(ranks, rank == 0 ? last : 0, bytes, rank == 0);
            if (bytes == 1)
                smallest = time;
            else
                times.push_back({bytes, time});
        }
        if (rank == 0) {
            const Link link = fitted_link(smallest, times);
            put(told, link.latency);
            put(told, link.bandwidth);
            put(told, link.half_size);
        }
    }
    told = broadcast(ranks, told);
    MailReader reader(told);
    Link link;
    link.latency = reader.get<Ns>();
    link.bandwidth = reader.get<double>();
    link.half_size = reader.get<Bytes>();
    return link;
}

}  // namespace pw
