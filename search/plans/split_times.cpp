#include "search/plans/split_times.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pw {

namespace {

constexpr std::int64_t kMostTimes = 10'000'000;  // of pieces, 8 bytes each
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kRoundedPart = 1e-7;  // of a part's time, beyond which a piece is an exception

bool has_stage(const Plan& plan, int device, int stage) {
    const std::vector<int> stages = plan.shape.stages_of(device);
    return std::ranges::find(stages, stage) != stages.end();
}

// Times of all layers before a piece, after the piece, and of the model.
struct Around {
    Ns forward_before = 0, backward_before = 0, backward_after = 0, forward = 0, backward = 0;
};

Around around_of(const Pieces& pieces, const Piece& piece) {
    const Piece before = piece.from == 0 ? Piece{} : pieces.between(0, piece.from), &model = pieces.model();
    return {before.forward, before.backward, model.backward - before.backward - piece.backward, model.forward,
            model.backward};
}

Ns time_in_list(const Window& window, const PlanBound& bound, int stage, const Piece& piece) {
    Ns time = bound.time_of(window.paths[static_cast<std::size_t>(stage)], stage, piece);
    if (window.from == stage)
        time += bound.head(stage, piece);
    if (window.to == stage)
        time += bound.tail(stage, piece);
    if (window.to == kUpdates)
        time += bound.update_time(stage, piece);
    return time;
}

double product(const std::vector<double>& weights, const std::vector<double>& numbers) {
    return std::inner_product(weights.begin(), weights.end(), numbers.begin(), 0.0);
}

// Sets the weighted sums of the numbers of all parts, by cut, for a range of cuts. Most weights are 0. Returns how many
// numbers were read.
std::int64_t set_sums(const std::vector<double>& weights, const std::vector<std::vector<double>>& numbers, int low,
                      int high, std::vector<double>& sums) {
    std::int64_t read = 0;
    std::fill(sums.begin() + low, sums.begin() + high + 1, 0.0);
    for (std::size_t part = 0; part < weights.size(); ++part) {
        if (weights[part] == 0)
            continue;
        for (int cut = low; cut <= high; ++cut)
            sums[static_cast<std::size_t>(cut)] += weights[part] * numbers[part][static_cast<std::size_t>(cut)];
        read += high - low + 1;
    }
    return read;
}

}  // namespace

SplitTimes::SplitTimes(const Plan& plan, const StageBounds& bounds, const StageSpace& space, const Cluster& cluster,
                       Ns limit, Deadline& deadline)
    : cuts_(static_cast<std::size_t>(bounds.pieces().cuts())),
      stages_(plan.shape.stages),
      listed_(bounds.shares_devices() && !bounds.plan().any_order()),
      windows_(windows_of(plan, bounds.plan(), listed_)) {
    const Pieces& pieces = bounds.pieces();
    for (int cut = 0; cut < space.whole(); ++cut)
        last_waits_for_all_ = last_waits_for_all_ && pieces.between(cut, space.whole()).waits_for_all;
    for (int cut = 0; cut <= space.whole(); ++cut)
        passes_before_.push_back(cut == 0 ? 0 : bounds.plan().passes_of(pieces.between(0, cut)));
    if (!listed_)
        find_messages(plan, pieces, cluster, bounds.plan().has_lengths());
    std::vector<char> is_cut(cuts_, false);  // before the stage
    is_cut.front() = true;
    for (int stage = 0; stage < stages_; ++stage) {
        deadline.check();
        add_stage(stage, plan, bounds.plan());
        add_pieces(stage, bounds, space.whole(), limit, is_cut);
        too_many_ = too_many_ || numbers() > kMostTimes;
        if (too_many_)
            return;
    }
}

// A stage that waits for all earlier stages reads a tensor of the stage before it, whatever this stage is.
void SplitTimes::find_messages(const Plan& plan, const Pieces& pieces, const Cluster& cluster, bool has_lengths) {
    const Shape& shape = plan.shape;
    const auto least_time = [&](const std::vector<Ends>& ends, Bytes bytes) {
        Ns least = ends.empty() ? 0 : std::numeric_limits<Ns>::max();
        for (const auto& [from, to] : ends) {
            const Link& link = cluster.link_of(from, to);
            least = std::min(least, link.latency + occupation_of(bytes, link, cluster.routes.most(from, to)));
        }
        longest_message_ = std::max(longest_message_, least);
        return least;
    };
    for (int stage = 0; stage < stages_; ++stage) {
        std::vector<Ends> there, back;  // empty if some micro-batch needs no message
        for (int mb = 0; stage > 0 && mb < shape.microbatches; ++mb) {
            const int from = shape.server_of(stage - 1, mb), to = shape.server_of(stage, mb);
            if (from == to) {
                there.clear();
                break;
            }
            if (std::ranges::find(there, Ends{from, to}) == there.end())
                there.push_back({from, to});
        }
        for (const auto& [from, to] : there)
            back.push_back({to, from});
        std::vector<Ns>&received = received_.emplace_back(), &returned = returned_.emplace_back();
        if (has_lengths)
            there.clear(), back.clear();
        for (std::size_t cut = 0; cut < cuts_; ++cut) {
            received.push_back(least_time(there, pieces.least_sent(static_cast<int>(cut))));
            returned.push_back(least_time(back, pieces.least_sent(static_cast<int>(cut))));
        }
    }
}

// A stage has a part for each window of its device. In any order it also has its F and its I, which paths of stages to
// and from windows of all devices count, the messages between it and the stage before it, and the first stage what
// follows its I.
void SplitTimes::add_stage(int stage, const Plan& plan, const PlanBound& bound) {
    StageTimes& own = stage_times_.emplace_back();
    Part forward, backward_to, backward_from, end, received, returned_to, returned_from;
    for (std::size_t number = 0; number < windows_.size(); ++number) {
        const Window& window = windows_[number];
        if (listed_ ? window.device == bound.device_of(stage) : has_stage(plan, window.device, stage)) {
            own.own_windows.push_back(number);
            own.parts.push_back({number});
        }
        const bool from_input = window.first == Op::BackwardInput;
        if (from_input || window.from > stage)
            forward.push_back(number);
        if (from_input || window.from >= stage)
            received.push_back(number);
        if (from_input && window.from < stage)
            backward_to.push_back(number);
        if (window.to > stage)
            backward_from.push_back(number);
        if (window.to >= stage)
            returned_from.push_back(number);
        if (window.to != kUpdates && stage == 0)
            end.push_back(number);
    }
    returned_to = backward_to;
    if (!listed_)
        own.parts.insert(own.parts.end(),
                         {forward, backward_to, backward_from, end, received, returned_to, returned_from});
}

// A stage that does not wait for all earlier stages may make the next message one that no path of stages waits for.
SplitTimes::Row SplitTimes::parts_of(int stage, const StageBounds& bounds, Piece piece, bool on_path) const {
    piece.waits_for_all = piece.waits_for_all || on_path;
    const PlanBound& bound = bounds.plan();
    Row parts;
    const auto add = [&](Ns time) { parts.push_back(static_cast<double>(time)); };
    for (const std::size_t number : stage_times_[static_cast<std::size_t>(stage)].own_windows)
        add(listed_ ? time_in_list(windows_[number], bound, stage, piece)
                    : time_in_any_order(windows_[number], bounds, stage, piece));
    if (listed_)
        return parts;
    const Around around = around_of(bounds.pieces(), piece);
    const bool waits = piece.waits_for_all;
    const Ns less = waits ? 0 : longest_message_;
    const auto row = static_cast<std::size_t>(stage), cut = static_cast<std::size_t>(piece.from);
    add(time_on_path(stage, piece, piece.forward, piece.head, around.forward_before, bound) - less);
    add((waits ? bound.path(piece.backward) : 0) - less);
    add(time_on_path(stage, piece, piece.backward, piece.tail, around.backward_before, bound) - less);
    add(stage == 0 ? bound.path(piece.rest) + bound.update_time(stage, piece) : 0);
    add(waits ? received_[row][cut] : 0);
    add(waits ? returned_[row][cut] : 0);
    add(waits ? returned_[row][cut] : 0);
    return parts;
}

// Returns what a stage adds to a path of stages that consists of all stages to it, and takes no longer than `before`
// and the messages without it. A stage that waits for all earlier stages adds its time. The path to or from another
// stage may be a path of layers, which takes `path` without the stage.
Ns SplitTimes::time_on_path(int stage, const Piece& piece, Ns own, Ns path, Ns before, const PlanBound& bound) const {
    if (piece.waits_for_all)
        return bound.path(own);
    return last_waits_for_all_
               ? std::max<Ns>(0, bound.path(path + own) - bound.longest(before) - stage * longest_message_)
               : 0;
}

// Paths of stages hold for a stage that waits for all earlier stages. For the tasks of another stage paths of layers
// hold. So the window begins earlier and ends later, by what paths of stages may be longer, or leaves the tasks out.
Ns SplitTimes::time_in_any_order(const Window& window, const StageBounds& bounds, int stage, const Piece& piece) const {
    const PlanBound& bound = bounds.plan();
    const PlanBound::PathCounts& tasks = window.paths[static_cast<std::size_t>(stage)];
    if (tasks.forwards + tasks.backwards + tasks.wholes == 0)
        return 0;
    Ns time = bound.time_of(tasks, stage, piece);
    if (window.updates[static_cast<std::size_t>(stage)])
        time += bound.update_time(stage, piece);
    if (piece.waits_for_all)
        return time;
    const Around around = around_of(bounds.pieces(), piece);
    const auto longer = [&](Ns stages, int messages, Ns layers) {
        return std::max<Ns>(0, bound.longest(stages) + messages * longest_message_ - bound.path(layers));
    };
    const int last = stages_ - 1;
    if (window.first == Op::BackwardInput)
        time -= longer(around.forward + around.backward_after, last + last - window.from, piece.before_backward());
    else if (window.from <= stage)
        time -= longer(around.forward_before, window.from, piece.head);
    else
        time -= longer(around.forward, window.from, piece.before_backward());
    if (window.to != kUpdates)
        time -= window.to <= stage ? longer(around.backward_before, window.to, piece.tail)
                                   : longer(around.backward, window.to, piece.after_forward());
    return std::max<Ns>(0, time);
}

void SplitTimes::add_pieces(int stage, const StageBounds& bounds, int whole, Ns limit, std::vector<char>& is_cut) {
    StageTimes& own = stage_times_.back();
    const Pieces& pieces = bounds.pieces();
    own.pieces.resize(cuts_);
    own.exceptions.resize(cuts_);
    const Row all = parts_of(stage, bounds, pieces.model(), true);
    own.before.assign(all.size(), Row(cuts_));
    own.after = own.before;
    for (int cut = 0; cut <= whole; ++cut) {
        const Row none(all.size()),
            before = cut == whole ? none : parts_of(stage, bounds, pieces.between(cut, whole), true),
            after = cut == 0 ? none : parts_of(stage, bounds, pieces.between(0, cut), true);
        for (std::size_t part = 0; part < all.size(); ++part) {
            own.before[part][static_cast<std::size_t>(cut)] = before[part];
            own.after[part][static_cast<std::size_t>(cut)] = after[part] - all[part] * (1 + kRoundedPart);
        }
    }
    const auto is_sum = [&](const Piece& piece) {  // within the rounding
        const Row parts = parts_of(stage, bounds, piece, true);
        const auto from = static_cast<std::size_t>(piece.from), to = static_cast<std::size_t>(piece.to);
        for (std::size_t part = 0; part < parts.size(); ++part) {
            const double less = parts[part] - own.before[part][from] - own.after[part][to];
            if (less < 0 || less > 4 * kRoundedPart * std::max(all[part], parts[part]) + 1e-9)
                return false;
        }
        return true;
    };
    std::vector<char> is_cut_after(cuts_, false);
    for (int cut = 0; cut < whole; ++cut) {
        if (!is_cut[static_cast<std::size_t>(cut)])
            continue;
        for (const Piece& piece : pieces.from(cut)) {
            const Ns time = (piece.to == whole) == (stage + 1 == stages_) ? bounds.step_time(stage, piece) : limit;
            if (time >= limit)
                continue;
            is_cut_after[static_cast<std::size_t>(piece.to)] = true;
            const PieceTime own_time{piece.to, static_cast<float>(time), cut >= pieces.first_sent(piece.to)};
            if (const bool sum = is_sum(piece); sum && (piece.waits_for_all || listed_))
                own.pieces[static_cast<std::size_t>(cut)].push_back(own_time);
            else
                own.exceptions[static_cast<std::size_t>(cut)].push_back(
                    {own_time, sum && piece.reads, parts_of(stage, bounds, piece, false)});
        }
    }
    for (const std::vector<PieceTime>& from : own.pieces)
        own.is_plain.push_back(!from.empty() && from.back().to - from.front().to + 1 == std::ssize(from) &&
                               std::ranges::none_of(from, &PieceTime::begins_late));
    is_cut.swap(is_cut_after);
}

std::int64_t SplitTimes::numbers() const {
    std::int64_t numbers = 0;
    for (const StageTimes& stage : stage_times_) {
        const auto parts = static_cast<std::int64_t>(stage.parts.size());
        numbers += 2 * parts * static_cast<std::int64_t>(cuts_);
        for (std::size_t cut = 0; cut < stage.pieces.size(); ++cut)
            numbers += std::ssize(stage.pieces[cut]) + (parts + 1) * std::ssize(stage.exceptions[cut]);
    }
    return numbers;
}

CutBox SplitTimes::all_splits() const {
    CutBox box;
    const int whole = static_cast<int>(cuts_) - 1;
    for (int cut = 0; cut <= stages_; ++cut) {
        box.low.push_back(cut == stages_ ? whole : cut);
        box.high.push_back(cut == 0 ? 0 : whole - stages_ + cut);
    }
    return box;
}

// Returns the best step to pieces whose parts are sums.
SplitTimes::Step SplitTimes::best_sum(const WeightedStage& stage, int cut, std::int64_t& looked) const {
    const std::vector<PieceTime>& pieces = stage.times.pieces[static_cast<std::size_t>(cut)];
    if (pieces.empty() || pieces.back().to < stage.low || pieces.front().to > stage.high)
        return {kInfinite};
    const int first = std::max(pieces.front().to, stage.low);
    const Rest& after = stage.after;
    if (stage.of_time == 0 && stage.times.is_plain[static_cast<std::size_t>(cut)] && pieces.back().to >= stage.high) {
        ++looked;
        const int to = stage.least_after[static_cast<std::size_t>(first)];
        const PieceTime& piece = pieces[static_cast<std::size_t>(to - pieces.front().to)];
        return {after.on_path[static_cast<std::size_t>(to)], to, &piece, nullptr, true};
    }
    Step best{kInfinite};
    const auto begin = std::ranges::lower_bound(pieces, first, {}, &PieceTime::to);
    auto piece = begin;
    for (; piece != pieces.end() && piece->to <= stage.high; ++piece) {
        const double later = (piece->begins_late ? after.off_path : after.on_path)[static_cast<std::size_t>(piece->to)];
        if (const double sum = later + stage.of_time * piece->time; sum < best.sum)
            best = {sum, piece->to, &*piece, nullptr, !piece->begins_late};
    }
    looked += piece - begin;
    return best;
}

SplitTimes::Step SplitTimes::best_step(const WeightedStage& stage, int cut, bool on_path, std::int64_t& looked) const {
    Step best = best_sum(stage, cut, looked);
    const double before = stage.before[static_cast<std::size_t>(cut)];
    best.sum += before;
    const std::vector<ExceptionalPiece>& exceptions = stage.times.exceptions[static_cast<std::size_t>(cut)];
    for (auto own = std::ranges::lower_bound(exceptions, stage.low, {},
                                             [](const ExceptionalPiece& other) { return other.piece.to; });
         own != exceptions.end() && own->piece.to <= stage.high; ++own) {
        const auto to = static_cast<std::size_t>(own->piece.to);
        const bool is_on_path = on_path && own->may_be_on_path, next_is = is_on_path && !own->piece.begins_late;
        const double later = is_on_path ? before + (next_is ? stage.after.on_path : stage.after.off_path)[to]
                                        : stage.rest.off_path[to] + product(stage.weights, own->parts);
        if (const double sum = later + stage.of_time * own->piece.time; sum < best.sum)
            best = {sum, own->piece.to, &own->piece, is_on_path ? nullptr : &own->parts, next_is};
        looked += is_on_path ? 1 : std::ssize(stage.weights);
    }
    return best;
}

struct SplitTimes::Scratch {
    Row of_parts, before, after;  // weights, and sums by cut
    Rest rest, rest_before, rest_after;
    std::vector<int> least_after;
    std::vector<std::vector<Step>> on_path, off_path;  // by stage, and by cut of the box
};

std::shared_ptr<SplitTimes::Scratch> SplitTimes::scratch() const {
    const Row none(cuts_, kInfinite);
    const Rest rest{none, none};
    const std::vector<std::vector<Step>> steps(static_cast<std::size_t>(stages_));
    return std::make_shared<Scratch>(Scratch{{}, none, none, rest, rest, rest, std::vector<int>(cuts_), steps, steps});
}

SplitTimes::Least SplitTimes::least(const std::vector<double>& weights, const CutBox& box, Scratch& scratch) const {
    Least answer;
    auto& [own, sums_before, sums_after, rest, before, after, least_after, on_path, off_path] = scratch;
    rest.on_path.back() = rest.off_path.back() = 0;
    for (int stage = stages_ - 1; stage >= 0; --stage) {
        const auto at = static_cast<std::size_t>(stage);
        const StageTimes& times = stage_times_[at];
        own.clear();
        for (const Part& part : times.parts)
            own.push_back(std::accumulate(part.begin(), part.end(), 0.0,
                                          [&](double sum, std::size_t time) { return sum + weights[time]; }));
        const int low = box.low[at + 1], high = box.high[at + 1];
        answer.looked += set_sums(own, times.after, low, high, sums_after);
        answer.looked += set_sums(own, times.before, box.low[at], box.high[at], sums_before);
        int least = high;
        for (int cut = high; cut >= low; --cut) {
            const auto to = static_cast<std::size_t>(cut);
            after.on_path[to] = rest.on_path[to] + sums_after[to];
            after.off_path[to] = rest.off_path[to] + sums_after[to];
            least = after.on_path[to] <= after.on_path[static_cast<std::size_t>(least)] ? cut : least;
            least_after[to] = least;
        }
        const WeightedStage weighted{times, own, weights[windows_.size() + at], sums_before, rest, after, least_after,
                                     low,   high};
        on_path[at].clear();
        off_path[at].clear();
        for (int cut = box.low[at]; cut <= box.high[at]; ++cut) {
            const auto from = static_cast<std::size_t>(cut);
            on_path[at].push_back(best_step(weighted, cut, true, answer.looked));
            before.on_path[from] = before.off_path[from] = on_path[at].back().sum;
            off_path[at].push_back(on_path[at].back());
            if (times.exceptions[from].empty())
                continue;
            off_path[at].back() = best_step(weighted, cut, false, answer.looked);
            before.off_path[from] = off_path[at].back().sum;
        }
        answer.looked += high - low + box.high[at] - box.low[at] + 2;
        std::swap(rest, before);
    }
    answer.mean = rest.on_path.front();
    if (answer.mean < kInfinite)
        read(scratch, box, answer);
    return answer;
}

void SplitTimes::read(const Scratch& scratch, const CutBox& box, Least& answer) const {
    answer.cuts = {0};
    answer.times.assign(count(), 0);
    bool is_on_path = true;
    for (std::size_t stage = 0; stage < stage_times_.size(); ++stage) {
        const auto cut = static_cast<std::size_t>(answer.cuts.back());
        const Step& step =
            (is_on_path ? scratch.on_path : scratch.off_path)[stage][cut - static_cast<std::size_t>(box.low[stage])];
        const StageTimes& times = stage_times_[stage];
        for (std::size_t part = 0; part < times.parts.size(); ++part) {
            const double time = step.parts != nullptr
                                    ? (*step.parts)[part]
                                    : times.before[part][cut] + times.after[part][static_cast<std::size_t>(step.to)];
            for (const std::size_t number : times.parts[part])
                answer.times[number] += time;
            answer.looked += std::ssize(times.parts[part]);
        }
        answer.times[windows_.size() + stage] = step.piece->time;
        answer.cuts.push_back(step.to);
        is_on_path = step.next_is_on_path;
    }
}

}  // namespace pw
