// Small configs with values from 0 to the largest that the reader accepts, the same for the same seed.
#pragma once

#include "schedules/orders/schedule.h"

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

namespace pw {

struct RandomConfig {
    std::string text;    // text of cfg.yaml
    std::string layers;  // text of layers.yaml, or empty where cfg.yaml names none
};

class RandomConfigs {
public:
    // With `tame` there is nothing that takes long to execute.
    explicit RandomConfigs(std::uint64_t seed, bool tame = false) : random_(seed), tame_(tame) {}

    RandomConfig draw() {
        RandomConfig config;
        uniform_ = one_in(2);
        const bool from_file = !uniform_ && !one_in(3);
        stages_ = 1 + below(one_in(4) ? 7 : 3);
        if (from_file)
            config.layers = layers();
        config.text = workload(from_file) + cluster() + pipeline() + rest();
        return config;
    }

private:
    int below(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
    bool one_in(int count) { return below(count) == 0; }
    std::string pick(std::initializer_list<const char*> texts) {
        return *(texts.begin() + below(static_cast<int>(texts.size())));
    }

    std::string time() {
        if (tame_)
            return pick({"0 ns", "1 ns", "10 us", "1 ms"});
        if (!one_in(6))
            return pick({"1 ns", "7 ns", "3 us", "1 ms", "0.1000000000000000000000000000 us"});
        return pick({"0 ns", "1 s", "17 s", "16 s", "1000000 s", "999999999999999 ns"});
    }
    std::string layer_time() {
        return tame_ || !one_in(6) ? pick({"0 ns", "1 ns", "3 us", "1 ms"}) : pick({"1000 s", "999 s", "1 s"});
    }
    std::string size() {
        if (!one_in(6))
            return pick({"0 B", "1 B", "100 B", "64 B", "1 MB", "3 kB"});
        return tame_ ? pick({"1 GB", "16 MiB"}) : pick({"1 TiB", "1024 TiB", "1000 TB", "1 GB"});
    }
    std::string layer_size() {
        return one_in(8) && !tame_ ? pick({"32 TiB", "1 TiB"}) : pick({"0 B", "1 kB", "64 B", "1 MB"});
    }
    std::string bandwidth() {
        if (tame_)
            return pick({"inf", "10 GB/s"});
        return one_in(4) ? pick({"1 B/s", "1e-20 B/s", "1 bit/s", "1e300 B/s", "1e-300 B/s", "1 kB/s"})
                         : pick({"inf", "10 GB/s", "1 MB/s"});
    }
    std::string speed() { return one_in(4) && !tame_ ? pick({"0.000001", "1000000"}) : pick({"1", "0.5", "3"}); }

    // Returns one value, or one per stage.
    template <class Value>
    std::string values(Value value) {
        if (!one_in(3))
            return value();
        std::string list = "[";
        for (int stage = 0; stage < stages_; ++stage)
            list += (stage > 0 ? ", " : "") + value();
        return list + "]";
    }

    std::string layers() {
        std::string text = fmt::format("samples: {}\nlayers:\n", pick({"1", "4", "1000000"}));
        const int count = stages_ + below(5);
        for (int layer = 0; layer < count; ++layer) {
            text += fmt::format("  - {{name: l{}, forward: {}, backward: {}, output: {}, weights: {}, saved: {}", layer,
                                layer_time(), layer_time(), layer_size(), layer_size(), layer_size());
            if (layer > 0 && one_in(3)) {
                const int input = below(layer);
                text += one_in(6) ? ", inputs: []" : fmt::format(", inputs: [l{}]", input);
            }
            text += "}\n";
        }
        return text;
    }

    std::string workload(bool from_file) {
        if (from_file)
            return "workload: {model: layers.yaml}\n";
        if (!uniform_)
            return fmt::format("workload: {{model: mlp, image_size: 4, hidden: [8, {}], classes: 10}}\n",
                               one_in(8) ? 1'000'000 : 4);
        std::string text = "workload: {model: uniform";
        for (const char* key : {"forward", "backward_input", "backward_weight"})
            if (tame_ || !one_in(4))
                text += fmt::format(", {}: {}", key, values([this] { return time(); }));
        for (const char* key : {"activation", "output", "weights"})
            if (!one_in(3))
                text += fmt::format(", {}: {}", key, values([this] { return size(); }));
        return text + "}\n";
    }

    std::string cluster() {
        std::string text = "cluster: {";
        if (one_in(3)) {
            text += "devices: [";
            for (int device = 0; device < stages_; ++device)
                text += fmt::format("{}{{speed: {}, memory: {}, host: {}}}", device > 0 ? ", " : "", speed(),
                                    pick({"inf", "1 GiB", "1 B"}), pick({"a", "b"}));
            text += "]";
        } else {
            text += fmt::format("devices: {}", one_in(5) ? 1 + below(stages_) : stages_);
        }
        if (one_in(4))
            text += ", memory: " + pick({"inf", "1 B", "16 GiB", "8000000 TiB"});
        if (!one_in(3))
            text += fmt::format(", link: {{bandwidth: {}, latency: {}}}", bandwidth(), time());
        if (!uniform_ && one_in(4) && !tame_)
            text += ", compute: " + pick({"1 FLOP/s", "1e-9 FLOP/s", "1000 PFLOP/s"});
        return text + "}\n";
    }

    std::string pipeline() {
        const Schedule& schedule = schedules()[static_cast<std::size_t>(below(static_cast<int>(schedules().size())))];
        const bool two = schedule.chunks == 2;
        const bool huge = !tame_ && uniform_ && one_in(40);  // more than any memory holds
        const bool many = !tame_ && !huge && one_in(100);    // micro-batches: what takes longest of all that fits
        int stages = two && one_in(2) ? 2 * stages_ : stages_;
        stages = huge ? 2000 + below(63'000) : stages;
        const int micro_batches = huge   ? 100'000 + below(900'000)
                                  : many ? 1000 + below(9000)
                                         : 1 + below(one_in(4) ? 40 : 9);
        std::string text = fmt::format("pipeline: {{schedule: {}, stages: {}, micro_batches: {}", schedule.name, stages,
                                       micro_batches);
        if (one_in(3))
            text += ", micro_batch_size: " + pick({"1", "3", tame_ ? "4" : "1000000", tame_ ? "2" : "65536"});
        if (one_in(8))
            text += ", mini_batch: " + pick({"1", "5", "1000000000000", "17"});
        if (one_in(6) && !uniform_)
            text += ", split: even";
        if (one_in(12))
            text += ", replicas: " + pick({"1", "2", "3"});
        else if (one_in(6)) {
            text += ", replicas: [";
            for (int stage = 0; stage < stages_; ++stage)
                text += fmt::format("{}{}", stage > 0 ? ", " : "", 1 + below(3));
            text += "]";
        }
        if (one_in(4))
            text += ", recompute: " + pick({"all", "[0]", "none"});
        if (one_in(8))
            text += ", recompute_saved: " + pick({"1", "2", "1000000"});
        if (one_in(8))
            text += ", recompute_ahead: " + pick({"1", "2", "1000000"});
        if (one_in(8))
            text += ", weights: " + pick({"flush", "stash", "vertical_sync", "latest", "double_buffer"});
        if (one_in(12))
            text += ", prediction: " + pick({"spectrain", "pipeoptim", "pipemare"});
        if (one_in(8))
            text += ", drain: " + pick({"fifo", "lifo"});
        if (one_in(8))
            text += ", group: " + pick({"1", "2", "1000000"});
        return text + "}\n";
    }

    std::string rest() {
        std::string text = fmt::format("training: {{steps: {}", one_in(30) && !tame_ ? 1'000'000'000 : 1 + below(3));
        if (one_in(10))
            text += ", clip_norm: 1";
        text +=
            fmt::format("}}\ntransfer: {{communicator: {}, receive: {}, protocol: {}}}\n",
                        pick({"edge", "direction", "one"}), pick({"early", "deferred"}), pick({"eager", "rendezvous"}));
        if (!uniform_ && (stages_ <= 3 || one_in(4)) && one_in(2))
            text += fmt::format("search: {{schedules: {}, mini_batch: {}, recompute: {}}}\n",
                                pick({"[gpipe, 1f1b]", "[interleaved]", "all", "[zb-v, pipedream]"}),
                                pick({"4", "12", "4294967295", "999999999989"}), pick({"none", "auto", "all"}));
        return text;
    }

    std::mt19937_64 random_;
    const bool tame_;
    bool uniform_ = true;
    int stages_ = 1;
};

}  // namespace pw
