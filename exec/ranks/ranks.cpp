#include "exec/ranks/ranks.h"

#include "exec/system/threads.h"
#include "workloads/error.h"
#include "workloads/first_failure.h"

#include <algorithm>

namespace pw {

namespace {

std::span<const std::byte> bytes_of(const Message& message) { return {message.data(), message.size()}; }

template <class Value>
std::span<std::byte> bytes_of(Value& value) {
    return std::as_writable_bytes(std::span(&value, 1));
}

void wait_for(Ranks& ranks, Ranks::Ticket ticket) { pw::wait_for(ranks, std::span(&ticket, 1)); }

// Gets a message from each rank of `from`, in their order.
std::vector<Message> receive_all(Ranks& ranks, const std::vector<int>& from, int tag) {
    std::vector<std::uint64_t> sizes(from.size());
    std::vector<Ranks::Ticket> tickets;
    for (std::size_t k = 0; k < from.size(); ++k)
        tickets.push_back(ranks.receive(from[k], tag, bytes_of(sizes[k])));
    wait_for(ranks, tickets);
    tickets.clear();
    std::vector<Message> messages(from.size());
    for (std::size_t k = 0; k < from.size(); ++k) {
        messages[k].resize(sizes[k]);
        tickets.push_back(ranks.receive(from[k], tag + 1, {messages[k].data(), messages[k].size()}));
    }
    wait_for(ranks, tickets);
    return messages;
}

// Sends messages, one for all or one for each.
void send_all(Ranks& ranks, const std::vector<int>& to, const std::vector<const Message*>& messages, int tag,
              const std::function<void()>& meanwhile) {
    std::vector<std::uint64_t> sizes;
    for (const Message* message : messages)
        sizes.push_back(message->size());
    std::vector<Ranks::Ticket> tickets;
    for (std::size_t k = 0; k < to.size(); ++k) {
        tickets.push_back(ranks.send(to[k], tag, bytes_of(sizes[k]), false));
        tickets.push_back(ranks.send(to[k], tag + 1, bytes_of(*messages[k]), false));
    }
    meanwhile();
    wait_for(ranks, tickets);
}

template <class Rest>
void poll_until_done(Ranks& ranks, std::span<const Ranks::Ticket> tickets, Rest rest) {
    try {
        for (const Ranks::Ticket ticket : tickets)
            while (!ranks.done(ticket))
                rest();
    } catch (...) {
        ranks.give_up();  // the memory of messages that would still arrive is about to be freed
        throw;
    }
}

std::vector<int> all_but_first(const Ranks& ranks) {
    std::vector<int> others;
    for (int rank = 1; rank < ranks.size(); ++rank)
        others.push_back(rank);
    return others;
}

}  // namespace

void wait_for(Ranks& ranks, std::span<const Ranks::Ticket> tickets) {
    poll_until_done(ranks, tickets, [start = clock_now()] { rest_in_wait(start); });
}

void wait_idly(Ranks& ranks, Ranks::Ticket ticket) {
    poll_until_done(ranks, std::span(&ticket, 1), [] { sleep_for(1'000'000); });
}

void wait_for_first(Ranks& ranks) {
    std::byte turn{};
    if (ranks.rank() != 0)
        return wait_idly(ranks, ranks.receive(0, kTurn, bytes_of(turn)));
    std::vector<Ranks::Ticket> tickets;
    for (const int other : all_but_first(ranks))
        tickets.push_back(ranks.send(other, kTurn, bytes_of(turn), false));
    wait_for(ranks, tickets);
}

std::vector<Message> exchange(Ranks& ranks, const std::vector<int>& others, const std::vector<Message>& messages,
                              int tag) {
    std::vector<const Message*> sent;
    for (const Message& message : messages)
        sent.push_back(&message);
    std::vector<Message> received;
    send_all(ranks, others, sent, tag, [&] { received = receive_all(ranks, others, tag); });
    return received;
}

std::vector<Message> gather(Ranks& ranks, const Message& own) {
    if (ranks.rank() != 0) {
        send_all(ranks, {0}, {&own}, kSize, [] {});
        return {};
    }
    std::vector<Message> all = receive_all(ranks, all_but_first(ranks), kSize);
    all.insert(all.begin(), own);
    return all;
}

Message broadcast(Ranks& ranks, const Message& of_first) {
    if (ranks.rank() != 0)
        return receive_all(ranks, {0}, kSize).front();
    const std::vector<int> others = all_but_first(ranks);
    send_all(ranks, others, std::vector<const Message*>(others.size(), &of_first), kSize, [] {});
    return of_first;
}

std::vector<Message> all_gather(Ranks& ranks, const Message& own) {
    Message together;
    for (const Message& message : gather(ranks, own))
        write_all(together, message);
    together = broadcast(ranks, together);
    MessageReader reader(together);
    std::vector<Message> all;
    while (!reader.at_end())
        all.push_back(reader.read_all<std::byte>());
    return all;
}

void write_text(Message& message, const std::string& text) {
    write_all(message, std::vector<char>(text.begin(), text.end()));
}

std::string MessageReader::read_text() {
    const std::vector<char> text = read_all<char>();
    return {text.begin(), text.end()};
}

void MessageReader::fail_short() {
    fail_with(ExitCode::RunFailed, "a message between ranks is too short: do all run the same pipewright?");
}

const std::byte* MessageReader::take(std::size_t bytes) {
    if (bytes > rest_.size())
        fail_short();
    const std::byte* taken = rest_.data();
    rest_ = rest_.subspan(bytes);
    return taken;
}

// The round trip with the shortest time is the most accurate (Cristian, "Probabilistic clock synchronization",
// 1989).
std::vector<ClockOffset> measure_clocks(Ranks& ranks, const std::vector<int>& others) {
    constexpr int kRoundTrips = 40;
    std::vector<ClockOffset> offsets;
    if (ranks.rank() != 0) {
        const bool takes_part = std::find(others.begin(), others.end(), ranks.rank()) != others.end();
        for (int trip_number = 0; takes_part && trip_number < kRoundTrips; ++trip_number) {
            Ns time = 0;
            wait_for(ranks, ranks.receive(0, kClock, bytes_of(time)));
            time = clock_now();
            wait_for(ranks, ranks.send(0, kClock, bytes_of(time), false));
        }
        return offsets;
    }
    offsets.resize(static_cast<std::size_t>(ranks.size()));
    for (const int other : others) {
        Ns shortest = 0;
        for (int trip_number = 0; trip_number < kRoundTrips; ++trip_number) {
            Ns sent = clock_now(), answer = 0;
            const Ranks::Ticket reply = ranks.receive(other, kClock, bytes_of(answer));
            wait_for(ranks, ranks.send(other, kClock, bytes_of(sent), false));
            wait_for(ranks, reply);
            const Ns trip = clock_now() - sent;
            if (trip_number > 0 && trip >= shortest)
                continue;
            shortest = trip;
            offsets[static_cast<std::size_t>(other)] = {answer - (sent + trip / 2), trip / 2, sent + trip / 2};
        }
    }
    return offsets;
}

}  // namespace pw
