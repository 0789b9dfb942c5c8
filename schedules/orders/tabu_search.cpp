#include "schedules/orders/tabu_search.h"

#include "workloads/random.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace pw {

namespace {

constexpr int kOutside = 2, kLongestMove = 8;  // places beyond a run of passes of the longest path, and in all
constexpr std::size_t kMostCritical = 64;      // passes of the longest path that may move in a round
constexpr int kTenure = 12;                    // rounds or more, up to twice as many
constexpr int kMostInVain = 100, kDrawnMoves = 10;
constexpr std::size_t kDrawnAmong = 12;
constexpr Ns kNoPath = std::numeric_limits<Ns>::min() / 4;

// A pass goes to another place in the list of its device. The passes between both places go to its side.
struct Move {
    int device, from, to;
    Ns estimate = 0;

    int first() const { return std::min(from, to); }
    int last() const { return std::max(from, to); }
    int before(int place) const {  // where the pass was that is at this place after the move
        return place == to ? from : from < to ? place + 1 : place - 1;
    }
    bool is_later() const { return from < to; }
};

void make(std::vector<OrderPass>& list, const Move& move) {
    const auto first = list.begin();
    if (move.is_later())
        std::rotate(first + move.from, first + move.from + 1, first + move.to + 1);
    else
        std::rotate(first + move.to, first + move.from, first + move.from + 1);
}

class TabuSearch {
public:
    TabuSearch(const OrderModel& model, OrderTimer& timer, TimedOrder order, Aim aim)
        : model_(model), timer_(timer), aim_(aim), best_(std::move(order)), current_(best_), passes_(model.passes()) {
        for (int number = 0; number < model.passes(); ++number) {
            state(number).stage = model.stage_of(number);
            state(number).microbatch = model.microbatch_of(number);
        }
        take_times(timer_.times(current_.lists));
        best_.times = current_.times;
    }

    const TimedOrder& best() const { return best_; }

    void round() {
        ++round_;
        find_moves();
        if (drawn_moves_ > 0 && !moves_.empty()) {
            --drawn_moves_;
            std::swap(moves_.front(), moves_[draw(std::min(moves_.size(), kDrawnAmong))]);
        }
        const bool moved = std::ranges::any_of(moves_, [&](const Move& move) { return try_move(move); });
        if (is_shorter(current_.times, best_.times, aim_)) {
            best_ = current_;
            in_vain_ = 0;
        } else if (++in_vain_ > kMostInVain || !moved)
            restart();
    }

private:
    // What is known of a pass in the current order.
    struct State {
        int stage, microbatch;
        int place = -1;           // in its device's list (-1: in none, as W of a B)
        Ns time = 0;              // from its start to its end
        Ns message_tail = 0;      // the longest path from its end by its messages
        Ns tail = 0;              // the longest path from its end
        std::array<int, 2> tabu;  // until which round it may not go to an earlier place, and to a later one
    };

    State& state(int number) { return passes_[static_cast<std::size_t>(number)]; }
    const std::vector<OrderPass>& list(int device) const { return current_.lists[static_cast<std::size_t>(device)]; }
    std::size_t draw(std::size_t below) { return static_cast<std::size_t>(mixed(++drawn_) % below); }

    void restart() {
        current_.lists = best_.lists;
        take_times(timer_.times(current_.lists));
        for (State& pass : passes_)
            pass.tabu = {};
        drawn_moves_ = kDrawnMoves;
        in_vain_ = 0;
    }

    // Takes the times of the current lists, which the timer found last.
    void take_times(const StepTimes& times) {
        current_.times = times;
        for (State& pass : passes_)
            pass.place = -1;
        for (const std::vector<OrderPass>& passes : current_.lists) {
            Ns free = 0;
            for (std::size_t place = 0; place < passes.size(); ++place) {
                const int number = passes[place].number();
                const Ns start = std::max(free, timer_.ready(number));
                state(number).place = static_cast<int>(place);
                state(number).time = timer_.end(number) - start;
                free = timer_.end(number) + timer_.update(number);
            }
        }
        const std::vector<int>& sequence = timer_.sequence();
        std::for_each(sequence.rbegin(), sequence.rend(), [&](int number) { find_tails(number); });
    }

    // A step ends with the last update. A span begins with the first pass of its device, and has no update at its end.
    Ns tail_of_last(int number) const {
        return aim_ == Aim::Step ? timer_.update(number) : -timer_.begin(model_.device_of(number));
    }
    // Returns the longest path from the end of a pass, if the path from its start by the next pass of the list is
    // known.
    Ns tail_before(int number, std::optional<Ns> next) {
        return std::max(state(number).message_tail, next ? timer_.update(number) + *next : tail_of_last(number));
    }

    void find_tails(int number) {
        State& pass = state(number);
        pass.message_tail = kNoPath;
        for (const OrderModel::Message& message : model_.messages(number))
            if (const State& reader = state(message.reader); reader.place >= 0)
                pass.message_tail = std::max(pass.message_tail, message.time() + reader.time + reader.tail);
        pass.tail = tail_before(number, path_from(model_.device_of(number), pass.place + 1));
    }

    std::optional<Ns> path_from(int device, int place) {
        if (place >= std::ssize(list(device)))
            return std::nullopt;
        const State& pass = state(list(device)[place].number());
        return pass.time + pass.tail;
    }

    // Returns the longest path through the passes that a move concerns, if all other passes keep their times.
    Ns estimate(const Move& move) {
        const std::vector<OrderPass>& passes = list(move.device);
        const auto number_at = [&](int place) { return passes[move.before(place)].number(); };
        Ns free = 0;
        if (move.first() > 0) {
            const int previous = passes[move.first() - 1].number();
            free = timer_.end(previous) + timer_.update(previous);
        }
        std::array<Ns, kLongestMove + 1> ends;
        for (int place = move.first(); place <= move.last(); ++place) {
            const int number = number_at(place);
            const Ns end = std::max(free, timer_.ready(number)) + state(number).time;
            ends[static_cast<std::size_t>(place - move.first())] = end;
            free = end + timer_.update(number);
        }
        std::optional<Ns> next = path_from(move.device, move.last() + 1);
        Ns longest = kNoPath;
        for (int place = move.last(); place >= move.first(); --place) {
            const int number = number_at(place);
            const Ns tail = tail_before(number, next);
            longest = std::max(longest, ends[static_cast<std::size_t>(place - move.first())] + tail);
            next = state(number).time + tail;
        }
        return longest;
    }

    // Returns whether the order of two passes is given, or means nothing.
    bool keep_order(OrderPass one, OrderPass other) {
        const State &of_one = state(one.number()), &of_other = state(other.number());
        return of_one.stage == of_other.stage && (of_one.microbatch == of_other.microbatch ||
                                                  (one.kind() == other.kind() && model_.has_equal_microbatches()));
    }

    void consider(int device, int from, int to) {
        const std::vector<OrderPass>& passes = list(device);
        if (to < 0 || to >= std::ssize(passes) || to == from || std::abs(to - from) > kLongestMove)
            return;
        Move move{device, from, to};
        const OrderPass moved = passes[from];
        bool is_tabu = state(moved.number()).tabu[move.is_later()] > round_;
        for (int place = move.first(); place <= move.last(); ++place)
            if (place != from) {
                if (keep_order(moved, passes[place]))
                    return;
                is_tabu = is_tabu || state(passes[place].number()).tabu[!move.is_later()] > round_;
            }
        move.estimate = estimate(move);
        if (!is_tabu || move.estimate < main_time(best_.times, aim_))
            moves_.push_back(move);
    }

    // Finds the moves of passes on a longest path, within runs of such passes on a device and a little beyond.
    void find_moves() {
        moves_.clear();
        const std::vector<int> path = longest_path();
        const auto device_at = [&](std::size_t at) { return model_.device_of(path[at]); };
        const auto follows = [&](std::size_t at, std::size_t first) {
            return device_at(at) == device_at(first) &&
                   state(path[at]).place == state(path[first]).place + static_cast<int>(at - first);
        };
        const std::size_t begin = path.size() > kMostCritical ? draw(path.size() - kMostCritical) : 0,
                          end = std::min(path.size(), begin + kMostCritical);
        for (std::size_t first = begin, next = begin; first < end; first = next) {
            const int device = device_at(first), from = state(path[first]).place;
            for (next = first + 1; next < end && follows(next, first);)
                ++next;
            const int to = from + static_cast<int>(next - first) - 1;
            for (int place = from; place <= to; ++place)
                for (int other = from - kOutside; other <= to + kOutside; ++other)
                    if (other != place + 1 || place == to)  // else the same as a move of the next pass
                        consider(device, place, other);
        }
        std::ranges::stable_sort(moves_, {}, &Move::estimate);
    }

    // Returns the numbers of the passes in order. A run of passes on a device is a range of the device's list.
    std::vector<int> longest_path() {
        int number = -1;
        Ns longest = kNoPath;
        for (const std::vector<OrderPass>& passes : current_.lists)
            if (!passes.empty())
                if (const int last = passes.back().number(); timer_.end(last) + tail_of_last(last) > longest) {
                    longest = timer_.end(last) + tail_of_last(last);
                    number = last;
                }
        std::vector<int> path;
        while (number >= 0) {
            path.push_back(number);
            const int place = state(number).place;
            const int previous = place > 0 ? list(model_.device_of(number))[place - 1].number() : -1;
            const bool waits_for_device =
                previous >= 0 && timer_.end(previous) + timer_.update(previous) >= timer_.ready(number);
            number = waits_for_device ? previous : timer_.last_sender(number);
        }
        std::ranges::reverse(path);
        return path;
    }

    // Makes a move unless the memory does not suffice, or passes wait for each other in a cycle.
    bool try_move(const Move& move) {
        std::vector<OrderPass>& passes = current_.lists[static_cast<std::size_t>(move.device)];
        make(passes, move);
        if (fits(model_, move.device, passes))
            if (const StepTimes times = timer_.times(current_.lists); times.step < StepTimes{}.step) {
                take_times(times);
                for (int place = move.first(); place <= move.last(); ++place)
                    state(passes[place].number()).tabu[(place == move.to) != move.is_later()] =
                        round_ + kTenure + static_cast<int>(draw(kTenure));
                return true;
            }
        make(passes, {move.device, move.to, move.from});
        return false;
    }

    const OrderModel& model_;
    OrderTimer& timer_;
    Aim aim_;
    TimedOrder best_, current_;
    std::vector<State> passes_;  // by number
    std::vector<Move> moves_;    // the best first
    int round_ = 0, in_vain_ = 0, drawn_moves_ = 0;
    std::uint64_t drawn_ = 0;
};

}  // namespace

TimedOrder tabu_searched(const OrderModel& model, OrderTimer& timer, TimedOrder order, const StepTimes& least, Aim aim,
                         int rounds) {
    TabuSearch search(model, timer, std::move(order), aim);
    for (int round = 0; round < rounds && main_time(search.best().times, aim) > main_time(least, aim); ++round)
        search.round();
    return search.best();
}

}  // namespace pw
