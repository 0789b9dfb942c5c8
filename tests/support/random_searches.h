// Small searches with every kind of choice, so small that all of their plans can be tried; the same for the same seed.
#pragma once

#include "search/plans/makespan.h"
#include "tests/support/dice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {

struct RandomSearch {
    // The features that are always drawn; others are drawn less often.
    enum class Kind { Chunks, ForwardOnly, Branches, Shares, Orders, Hosts, Memory, Rules, Asynchronous };
    static constexpr int kKinds = 9;
    struct LayerRow {
        std::string inputs;
        Ns forward, backward_input, backward_weight, update, accumulate, recompute;
        Bytes output, weights, saved;
        double busy;           // how much longer its passes take in parallel with others; 1: as long
        double slow = 1;       // how much longer they take on devices of the second make
        double attention = 0;  // the part of the passes that is causal attention
    };
    struct Device {
        double speed = 1;
        Bytes memory = kUnlimited;
        std::string host = {};
        int make = 0;  // 1: layers take the times of the second file
        auto operator<=>(const Device&) const = default;
    };
    struct Pair {
        int from, to;
        Ns latency;
    };
    struct Bus {
        std::vector<int> devices;
        int bandwidth;  // GB/s
    };

    Kind kind = Kind::Chunks;
    std::vector<LayerRow> rows;
    std::vector<Device> devices;
    std::vector<Pair> links;
    std::vector<Bus> buses;
    std::string network, rest, schedule;  // lines of the config
    std::vector<int> stages, sizes;
    int mini_batch = 1;
    bool replicas = false, has_busy = false;
    std::string recompute = "none";
    std::vector<int> saved = {0}, ahead = {0};  // with `recompute`
    std::string offload = "none";
    std::vector<int> offload_ahead = {1};
    bool offloads_states = false;
    std::vector<int> slices = {1};  // of schedules that cut sequences
    std::vector<std::string> slice_lengths = {"even"};
    std::vector<double> lengths;  // of micro-batches, empty: all alike
    PlanLimits limits;

    bool has_slices() const { return slices.front() > 1; }

    bool has_network() const { return !links.empty() || !buses.empty() || devices.front().host != devices.back().host; }

    std::string layers(bool of_second_make = false) const {
        std::string text = "samples: 1\nlayers:\n";
        for (std::size_t layer = 0; layer < rows.size(); ++layer) {
            const LayerRow& row = rows[layer];
            const auto on_make = [&](Ns time) {
                return of_second_make ? static_cast<Ns>(static_cast<double>(time) * row.slow) : time;
            };
            text += fmt::format(
                "  - {{name: l{}{}, forward: {} ns, backward_input: {} ns, backward_weight: {} ns, output: {} B, "
                "weights: {} B, saved: {} B, attention: {}}}\n",
                layer, row.inputs, on_make(row.forward), on_make(row.backward_input), on_make(row.backward_weight),
                row.output, row.weights, row.saved, row.attention);
        }
        return text;
    }

    // Returns the config on some of the devices, in this order, with other blocks in place of `search`.
    std::string config(const std::vector<int>& order, const std::string& blocks) const {
        std::vector<std::string> all, pairs, shared;
        std::vector<int> number(devices.size(), -1);
        for (std::size_t place = 0; place < order.size(); ++place)
            number[order[place]] = static_cast<int>(place);
        for (const int device : order) {
            const Device& one = devices[device];
            all.push_back(fmt::format("{{speed: {}, memory: {}{}{}}}", one.speed,
                                      one.memory == kUnlimited ? "inf" : fmt::format("{} B", one.memory),
                                      one.host.empty() ? "" : ", host: " + one.host,
                                      one.make == 0 ? "" : ", profile: second.yaml"));
        }
        for (const Pair& pair : links)
            if (number[pair.from] >= 0 && number[pair.to] >= 0)
                pairs.push_back(fmt::format("{{from: {}, to: {}, latency: {} ns, bandwidth: 30 GB/s}}",
                                            number[pair.from], number[pair.to], pair.latency));
        for (const Bus& bus : buses) {
            std::vector<int> members;
            for (const int device : bus.devices)
                if (number[device] >= 0)
                    members.push_back(number[device]);
            if (!members.empty())
                shared.push_back(
                    fmt::format("{{devices: [{}], bandwidth: {} GB/s}}", fmt::join(members, ", "), bus.bandwidth));
        }
        return fmt::format(
            "workload: {{model: layers.yaml}}\ncluster: {{devices: [{}], links: [{}], shared: [{}]{}}}\n"
            "run: {{backend: emulated}}\n{}{}",
            fmt::join(all, ", "), fmt::join(pairs, ", "), fmt::join(shared, ", "), network, rest, blocks);
    }

    std::string lengths_of_micro_batches() const {
        return lengths.empty() ? "" : fmt::format("micro_batch_lengths: [{}]", fmt::join(lengths, ", "));
    }

    std::string search() const {
        std::vector<std::string> pipeline;
        if (!lengths.empty())
            pipeline = {fmt::format("micro_batches: {}", mini_batch), lengths_of_micro_batches()};
        if (offloads_states)
            pipeline.emplace_back("offload_states: all");
        return (pipeline.empty() ? "" : fmt::format("pipeline: {{{}}}\n", fmt::join(pipeline, ", "))) +
               fmt::format(
                   "search: {{schedules: [{}], mini_batch: {}, micro_batch_sizes: [{}], stages: [{}], replicas: {}, "
                   "recompute: {}, recompute_saved: [{}], recompute_ahead: [{}], offload: {}, offload_ahead: [{}], "
                   "{}profile_batch: 1}}\n",
                   schedule, mini_batch, fmt::join(sizes, ", "), fmt::join(stages, ", "), replicas, recompute,
                   fmt::join(saved, ", "), fmt::join(ahead, ", "), offload, fmt::join(offload_ahead, ", "),
                   has_slices() ? fmt::format("slices: [{}], slice_lengths: [{}], ", fmt::join(slices, ", "),
                                              fmt::join(slice_lengths, ", "))
                                : "");
    }

    // Adds costs to the layers that a layer graph does not have.
    Profile changed(Profile profile) const {
        change(profile.layers);
        for (std::vector<LayerProfile>& layers : profile.of_makes)
            change(layers);
        return profile;
    }

private:
    void change(std::vector<LayerProfile>& layers) const {
        for (std::size_t layer = 0; layer < rows.size(); ++layer) {
            layers[layer].update.median = rows[layer].update;
            LayerTimes& times = layers[layer].times.begin()->second;
            times.accumulate.median = rows[layer].accumulate;
            times.recompute.median = rows[layer].recompute;
            if (!has_busy)
                continue;
            LayerTimes busy = times;
            for (Measured* pass : {&busy.forward, &busy.backward, &busy.backward_input, &busy.backward_weight})
                pass->median = static_cast<Ns>(static_cast<double>(pass->median) * rows[layer].busy);
            layers[layer].busy[layers[layer].times.begin()->first] = busy;
        }
    }
};

class RandomSearches {
public:
    explicit RandomSearches(unsigned seed) : random_(seed) {}

    RandomSearch draw() {
        search_ = {};
        search_.kind = static_cast<RandomSearch::Kind>(pick(random_, 0, RandomSearch::kKinds - 1));
        draw_schedule();
        draw_devices();
        draw_layers();
        draw_extremes();
        draw_network();
        draw_rest();
        draw_limits();
        draw_makes();
        draw_offload();
        draw_slices();
        return search_;
    }

private:
    using Kind = RandomSearch::Kind;
    bool is(Kind kind) const { return search_.kind == kind; }
    bool one_in(int count) { return pick(random_, 1, count) == 1; }
    template <class Value>
    Value one_of(const std::vector<Value>& values) {
        return values[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(values.size()) - 1))];
    }

    void draw_schedule() {
        const std::vector<std::string> one_each = {"1f1b", "gpipe", "eager-1f1b", "zb-h1", "zb-h2", "naive"};
        const std::vector<std::string> several = {"gpipe", "naive",        "bfs", "interleaved",
                                                  "zb1p",  "forward-only", "zb-v"};
        const bool shares = is(Kind::Chunks) || is(Kind::ForwardOnly) || (is(Kind::Branches) && !one_in(4));
        search_.schedule = is(Kind::Asynchronous) ? one_of<std::string>({"pipedream", "pipedream-2bw"})
                           : is(Kind::ForwardOnly) || (is(Kind::Shares) && one_in(6)) ? "forward-only"
                           : shares || (!is(Kind::Shares) && one_in(5))               ? one_of(several)
                                                                                      : one_of(one_each);
        several_ = shares;
        search_.mini_batch = search_.schedule == "pipedream" ? 1 : pick(random_, 1, 4);
        search_.sizes = search_.mini_batch == 4 && one_in(4) ? std::vector{1, 2} : std::vector{1};
        const bool looped = search_.schedule == "bfs" || search_.schedule == "interleaved" ||
                            search_.schedule == "zb1p" || search_.schedule == "zb-v";
        search_.stages = {several_           ? pick(random_, 4, 6)
                          : is(Kind::Shares) ? pick(random_, 1, 3)
                                             : pick(random_, 2, 4)};
        if (looped)
            search_.stages = {one_of<int>({4, 4, 6})};
        if (one_in(6))
            search_.stages.push_back(search_.stages.front() == 2 ? 1 : 2);
    }

    void draw_devices() {
        const int most = search_.stages.front();
        const int count = several_           ? pick(random_, 2, 3)
                          : is(Kind::Shares) ? pick(random_, 3, 4)
                          : is(Kind::Orders) ? pick(random_, 2, 4)
                          : is(Kind::Hosts)  ? pick(random_, 3, 4)
                                             : std::clamp(pick(random_, most - 1, most + 1), 1, 4);
        search_.devices.assign(static_cast<std::size_t>(count), {});
        odd_one_ = is(Kind::Shares) && one_in(2);
        if (odd_one_) {
            if (one_in(2))
                search_.devices.back().speed = 20;
            else
                for (RandomSearch::Device& device : search_.devices)
                    device.memory = 64 * (&device == &search_.devices.back() ? 1000 : 100);
            return;
        }
        const bool unlike = is(Kind::Shares) || is(Kind::Orders);
        if (is(Kind::Memory) || (unlike ? one_in(2) : one_in(4))) {
            const Bytes memory = 64 * pick(random_, 8, 80);
            for (RandomSearch::Device& device : search_.devices)
                device.memory = unlike || one_in(3) ? (one_in(3) ? 8 : 1) * 64 * pick(random_, 8, 80) : memory;
        }
        if (unlike || one_in(8))
            for (RandomSearch::Device& device : search_.devices)
                device.speed = one_in(4) ? 20 : one_of<double>({1, 1, 0.7, 2});
    }

    void draw_makes() {
        if (!one_in(5))
            return;
        for (RandomSearch::Device& device : search_.devices)
            device.make = pick(random_, 0, 1);
        for (RandomSearch::LayerRow& row : search_.rows)
            row.slow = one_of<double>({0.5, 1, 1.3, 2.5});
    }

    // Copies need several micro-batches between a forward and its backward.
    void draw_offload() {
        if (search_.recompute != "none" || is(Kind::Asynchronous) || !one_in(3))
            return;
        search_.offload = one_in(2) ? "auto" : "all";
        if (one_in(2))
            search_.offload_ahead = {1, 2};
        if (search_.sizes.size() == 1)
            search_.mini_batch = pick(random_, 5, 8);
        search_.offloads_states = one_in(3);
        search_.network += fmt::format(", host_link: {{bandwidth: {} GB/s, latency: {} ns}}", 1 << pick(random_, 0, 6),
                                       pick(random_, 0, 5));
        if (one_in(2) && search_.rest.find("transfer:") == std::string::npos)
            search_.rest += "transfer: {copies: both ways}\n";
    }

    // Long times, so that little of them is rounded.
    void draw_slices() {
        const bool cuts = search_.schedule == "forward-only";
        if (several_ != cuts || is(Kind::Asynchronous) || search_.recompute == "all" || search_.offload == "all" ||
            !one_in(2))
            return;
        if (!cuts)
            search_.schedule = "seq1f1b";
        search_.slices = one_of<std::vector<int>>({{2}, {3}, {2, 4}});
        search_.slice_lengths = one_of<std::vector<std::string>>({{"even"}, {"time"}, {"time", "even"}});
        if (search_.sizes.size() == 1 && one_in(3))
            for (int number = 0; number < search_.mini_batch; ++number)
                search_.lengths.push_back(one_of<double>({0.5, 1, 1.7}));
        for (RandomSearch::Device& device : search_.devices)
            device.make = 0;
        const int longer = one_in(3) ? 1 : 1000;
        for (RandomSearch::LayerRow& row : search_.rows) {
            row.attention = one_of<double>({0, 0, 0.4, 1});
            for (Ns* time : {&row.forward, &row.backward_input, &row.backward_weight, &row.update, &row.accumulate})
                *time *= longer;
            row.recompute = row.forward;
        }
    }

    void make_last_layer_heavy() {
        RandomSearch::LayerRow& last = search_.rows.back();
        last.forward = 10 * last.forward + 100;
        if (search_.devices.front().memory != kUnlimited)
            last.weights = search_.devices.front().memory / 128 * 64;  // gradients and momentum take as much each
    }

    // Branches without time, in turn with more memory than the first device has left and with none.
    void make_every_other_branch_large() {
        for (std::size_t layer = 1; layer + 1 < search_.rows.size(); ++layer) {
            RandomSearch::LayerRow& row = search_.rows[layer];
            row.weights = layer % 2 == 0 ? 0 : 1024;
            if (layer % 2 == 1)
                row.forward = row.backward_input = row.backward_weight = row.recompute = 0;
        }
        search_.devices.front().memory = 3 * 1024 * pick(random_, 1, 2) + 2048;
    }

    void draw_layers() {
        const bool branches = is(Kind::Branches) || one_in(6);
        const int count = std::max(search_.stages.front(), pick(random_, 3, several_ ? 8 : 5));
        const int heavy = one_in(2) ? 1 : is(Kind::ForwardOnly) ? 20 : one_of<int>({1, 20});
        const int large = one_in(3) ? 10 : 1;
        for (int layer = 0; layer < count; ++layer) {
            RandomSearch::LayerRow& row = search_.rows.emplace_back();
            if (branches && layer + 1 == count && count > 2) {
                std::vector<std::string> inputs;
                for (int input = 1; input < layer; ++input)
                    inputs.push_back(fmt::format("l{}", input));
                row.inputs = fmt::format(", inputs: [{}]", fmt::join(inputs, ", "));
            } else if (branches && layer > 0) {
                row.inputs = fmt::format(", inputs: [l{}]", one_in(3) ? layer - 1 : 0);
            }
            const auto time = [&](int most) { return one_in(4) ? 0 : pick(random_, 1, one_in(5) ? 10 * most : most); };
            row.forward = time(20);
            row.backward_input = heavy * time(20);
            row.backward_weight = time(20);
            row.update = one_in(2) ? 0 : time(10);
            row.accumulate = one_in(2) ? 0 : time(3);
            row.recompute = row.forward;
            row.output = 64 * pick(random_, 0, 4);
            row.weights = one_in(3) ? 0 : 64 * pick(random_, 0, one_in(3) ? 4 * large : 4);
            row.saved = 64 * pick(random_, 0, 4);
            row.busy = 1 + 0.1 * pick(random_, -1, 8);
        }
    }

    void draw_extremes() {
        if (odd_one_)
            make_last_layer_heavy();
        if (is(Kind::Branches) && one_in(2))
            make_every_other_branch_large();
    }

    void draw_network() {
        if (is(Kind::Hosts)) {
            const int hosts = pick(random_, 2, 3);
            const bool in_turn = one_in(2);
            for (std::size_t device = 0; device < search_.devices.size(); ++device)
                search_.devices[device].host =
                    one_in(5) ? "h0"
                              : fmt::format("h{}", in_turn ? device % hosts : device * hosts / search_.devices.size());
            if (one_in(5))
                search_.network = fmt::format(", link: {{latency: {} ns, bandwidth: 100 GB/s}}", pick(random_, 0, 2));
            else
                search_.network = fmt::format(
                    ", inside: {{latency: {} ns, bandwidth: 100 GB/s}}, between: {{latency: {} ns, bandwidth: {} "
                    "GB/s}}",
                    pick(random_, 0, 2), pick(random_, 0, 60), pick(random_, 1, 20));
        } else if (one_in(2)) {
            search_.network = fmt::format(", link: {{latency: {} ns, bandwidth: {} GB/s}}", pick(random_, 0, 60),
                                          pick(random_, 1, 40));
        }
        const int last = static_cast<int>(search_.devices.size()) - 1;
        if (last > 0 && (is(Kind::Hosts) ? one_in(4) : one_in(12))) {
            const int from = pick(random_, 0, last);
            search_.links.push_back({from, (from + pick(random_, 1, last)) % (last + 1), pick(random_, 0, 90)});
        }
        if (last > 0 && (is(Kind::Hosts) ? one_in(4) : one_in(12))) {
            const int first = pick(random_, 0, last - 1);
            search_.buses.push_back({{first, pick(random_, first + 1, last)}, pick(random_, 1, 20)});
        }
        if (one_in(4))
            search_.network += fmt::format(", dispatch: {} ns", pick(random_, 1, 5));
        search_.has_busy = is(Kind::Rules) && one_in(3);
    }

    void draw_rest() {
        search_.replicas = is(Kind::Shares) || (is(Kind::Hosts) && one_in(3));
        if (is(Kind::Rules) && one_in(2))
            search_.recompute = one_of<std::string>({"all", "auto"});
        if (search_.recompute != "none" && one_in(2))
            search_.saved = {pick(random_, 0, 1), pick(random_, 2, 3)};
        if (search_.recompute != "none" && one_in(2))
            search_.ahead = {0, pick(random_, 1, 3)};
        const bool rules = is(Kind::Rules) || one_in(5);
        if (rules && one_in(3))
            search_.rest += "transfer: {exchange: blocking}\n";
        else if (rules && one_in(2))
            search_.rest += "transfer: {receive: deferred, communicator: one}\n";
        else if (rules || (search_.replicas && one_in(3)))
            search_.rest += "transfer: {sum_bucket: 128 B}\n";
        search_.rest +=
            fmt::format("training: {{steps: 4, zero: {}}}\n", search_.replicas && one_in(2) ? pick(random_, 1, 3) : 0);
    }

    void draw_limits() {
        PlanLimits& limits = search_.limits;
        limits.tasks = one_of<std::int64_t>({1, 300, 5'000, 20'000});
        if (is(Kind::Branches) || one_in(8))
            limits.cuts = static_cast<std::size_t>(pick(random_, 1, one_in(2) ? 12 : 1200));
        if (is(Kind::Shares) || one_in(8))
            limits.choices.shares = pick(random_, 1, 3);
        if (is(Kind::Orders) || is(Kind::Hosts) || one_in(8))
            limits.choices.orders = static_cast<std::size_t>(one_in(2) ? pick(random_, 1, 4) : 720);
        if (is(Kind::Hosts) || one_in(8))
            limits.choices.network_orders = static_cast<std::size_t>(pick(random_, 1, 9));
        if (one_in(25))
            limits.seconds = 1e-4 * pick(random_, 0, 20);
    }

    Random random_;
    RandomSearch search_;
    bool several_ = false;  // stages on some device
    bool odd_one_ = false;  // the last device alone is fast or large, and the last layer takes what it has
};

}  // namespace pw
