// The config that `search -o` writes has the claimed step time, whatever the cluster.
#include "tests/support/cli_rig.h"
#include "tests/support/dice.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {
namespace {

class SearchFiles : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        std::string layers = "samples: 1\nlayers:\n";
        for (int layer = 0; layer < 6; ++layer)
            layers += fmt::format(
                "  - {{name: l{}, forward: {} us, backward: {} us, output: {} kB, weights: 1 MB, saved: 100 kB}}\n",
                layer, 50 + 30 * (layer % 3), 110 + 50 * (layer % 2), 40 + 100 * (layer % 2));
        write("layers.yaml", layers);
        write(
            "ranks.json",
            R"({"server_list": [{"server_id": "a", "device": [{"device_id": "0", "rank_id": "0"}, {"device_id": "1", )"
            R"("rank_id": "1"}]}, {"server_id": "b", "device": [{"device_id": "0", "rank_id": "2"}, )"
            R"({"device_id": "1", "rank_id": "3"}]}]})");
        std::filesystem::create_directory(file("deep"));
    }

    // Searches with these blocks and simulates the config that is written; returns the file.
    std::string best_of(const std::string& cluster, const std::string& search, const std::string& run = "") {
        write("search.yaml",
              fmt::format("workload: {{model: layers.yaml}}\ncluster: {}\nrun: {{backend: emulated}}\n{}search: {}\n",
                          cluster, run, search));
        const Json found = run_well("search search.yaml --json --threads 1 -o deep/best.yaml").json();
        const std::string best = read("deep/best.yaml");
        const Json simulated = run_well("simulate deep/best.yaml --json").json();
        EXPECT_EQ(simulated["step_time_ns"], found["objective_ns"]) << cluster << search << '\n' << best;
        EXPECT_EQ(simulated["fits"], true) << best;
        std::int64_t most = 0;
        for (const Json& device : simulated["devices"])
            most = std::max(most, device["reserved_memory_bytes"].get<std::int64_t>());
        EXPECT_EQ(found["best"]["reserved_memory_bytes"], most) << best;
        run_well("validate deep/best.yaml");
        return best;
    }
};

// Clusters of hosts, switches, links of pairs, buses and rank tables, with more devices than the best plan uses.
std::string random_cluster(Random& random) {
    const auto one_of = [&](std::vector<std::string> texts) {
        return texts[static_cast<std::size_t>(pick(random, 0, static_cast<int>(texts.size()) - 1))];
    };
    const std::string links =
        one_of({"inside: nvlink3, between: hdr200", "inside: nvlink3, between: {bandwidth: 1 GB/s, latency: 20 us}"});
    std::string text;
    switch (pick(random, 0, 4)) {
        case 0: {
            const int hosts = pick(random, 2, 4), each = hosts == 2 ? 2 : pick(random, 1, 2);
            text = fmt::format("hosts: {}, devices_per_host: {}, {}", hosts, each, links);
            if (hosts == 4)
                text +=
                    one_of({", switches: [{hosts: [0, 1], bandwidth: 3 GB/s}, {hosts: [2, 3], bandwidth: 2 GB/s}]",
                            ", switches: [{hosts: [1, 2], bandwidth: 3 GB/s}, {hosts: [0, 1, 2], bandwidth: 2 GB/s}]",
                            ", switches: [{hosts: [host 3], bandwidth: 1 GB/s}]"});
            break;
        }
        case 1:
            text = "devices: [{host: x}, {host: y}, {host: x, speed: 2}, {host: z, name: last}], " + links +
                   one_of({"", ", switches: [{hosts: [x, z], bandwidth: 1 GB/s}]"});
            break;
        case 2:
            text = "rank_table: ranks.json, " + links +
                   one_of({"", ", memory: 1 GB", ", devices: [{}, {speed: 3}, {}, {}]"});
            break;
        case 3:
            text = "devices: 5, devices_per_host: 2, " + links + ", memory: 64 MB";
            break;
        default:
            text =
                "devices: [{speed: 1}, {speed: 2, name: fast}, {memory: 9 MB}, {}], link: {bandwidth: 2 GB/s, latency: "
                "3 us}";
    }
    if (pick(random, 0, 1) == 0)
        text += ", links: [{from: 0, to: 1, bandwidth: 700 MB/s}, {from: 1, to: 2, bandwidth: 5 GB/s, latency: 1 us}]";
    if (pick(random, 0, 1) == 0)
        text += ", shared: [{devices: [0, 1], bandwidth: 900 MB/s}, {devices: [0, 1, 2], bandwidth: 1 GB/s}]";
    return "{" + text + "}";
}

std::string random_search(Random& random) {
    const int stages = pick(random, 1, 3);
    return fmt::format("{{schedules: [{}], stages: [{}], mini_batch: 4, micro_batch_sizes: [1], profile_batch: 1{}}}",
                       pick(random, 0, 3) == 0 ? "gpipe, 1f1b, zb-h1" : "1f1b", stages,
                       pick(random, 0, 2) == 0 ? ", replicas: true" : "");
}

}  // namespace

TEST_F(SearchFiles, SimulateToTheClaimedTime) {
    Random random(11);
    for (int instance = 0; instance < rounds(5); ++instance) {
        const std::string cluster = random_cluster(random);
        best_of(cluster, random_search(random));
        if (HasFailure())
            FAIL() << "instance " << instance;
    }
}

TEST_F(SearchFiles, KeepHostsAndDropUnusedLinks) {
    const std::string two = "{schedules: [1f1b], stages: [2], mini_batch: 4, micro_batch_sizes: [1], profile_batch: 1}";
    const std::string hosts = "{hosts: 4, devices_per_host: 1, inside: nvlink3, between: hdr200, memory: 1 GB, ";
    const std::string best =
        best_of(hosts + "switches: [{hosts: [0, 1], bandwidth: 9 GB/s}, {hosts: [2], bandwidth: 1 GB/s}]}", two);
    EXPECT_TRUE(contains(best, "  hosts: 2\n  devices_per_host: 1\n  memory: 1 GB\n")) << best;
    EXPECT_FALSE(contains(best, "switches")) << best;
    EXPECT_TRUE(contains(best, "  model: \"../layers.yaml\"\n")) << best;
    for (const char* key : {"image_size", "classes", "dataset", "name:"})
        EXPECT_FALSE(contains(best, key)) << best;
    const std::string uneven =
        best_of("{devices: 3, devices_per_host: 2, inside: nvlink3, between: nvlink3}",
                "{schedules: [1f1b], stages: [3], mini_batch: 4, micro_batch_sizes: [1], profile_batch: 1}");
    EXPECT_TRUE(contains(uneven, "  devices: 3\n  devices_per_host: 2\n")) << uneven;
}

TEST_F(SearchFiles, KeepARankTableForAllOfItsDevices) {
    const std::string cluster = "{rank_table: ranks.json, inside: nvlink3, between: hdr200}";
    const std::string all =
        best_of(cluster, "{schedules: [1f1b], stages: [4], mini_batch: 4, micro_batch_sizes: [1], profile_batch: 1}");
    EXPECT_TRUE(contains(all, "  devices: 4\n")) << all;
    EXPECT_TRUE(contains(all, "  rank_table: \"../ranks.json\"\n")) << all;
    const std::string some =
        best_of(cluster, "{schedules: [1f1b], stages: [2], mini_batch: 4, micro_batch_sizes: [1], profile_batch: 1}");
    EXPECT_FALSE(contains(some, "rank_table")) << some;
    EXPECT_TRUE(contains(some, "    - {name: rank 0, host: a}\n    - {name: rank 1, host: a}\n")) << some;
}

// Relative paths are written relative to the new file, also through a parent folder; absolute paths stay.
TEST_F(SearchFiles, HavePathsRelativeToThemselves) {
    const std::string rest =
        "cluster: {devices: 2}\nrun: {backend: emulated}\nsearch: {stages: [2], mini_batch: 4, profile_batch: "
        "1}\ntraining: {initial: start}\n";
    write("search.yaml", "workload: {model: layers.yaml}\n" + rest);
    run_well("search search.yaml -o deep/../deep/best.yaml");
    EXPECT_TRUE(contains(read("deep/best.yaml"), "  model: \"../layers.yaml\"\n")) << read("deep/best.yaml");
    EXPECT_TRUE(contains(read("deep/best.yaml"), "  initial: \"../start\"\n")) << read("deep/best.yaml");
    run_well("search search.yaml -o deep/best.yaml --set workload.model=" + file("layers.yaml").string());
    EXPECT_TRUE(contains(read("deep/best.yaml"), "  model: " + file("layers.yaml").string())) << read("deep/best.yaml");
    run_well("simulate deep/best.yaml");
}

TEST_F(SearchFiles, HaveNoKeysThatTheModelLacks) {
    write("gpt.yaml",
          "workload: {model: gpt, blocks: 2, vocabulary: 64, embedding: 32, heads: 2}\ncluster: {devices: 2}\nsearch: "
          "{stages: [2], mini_batch: 4}\n");
    run_well("search gpt.yaml -o best.yaml");
    EXPECT_FALSE(contains(read("best.yaml"), "image_size")) << read("best.yaml");
    EXPECT_FALSE(contains(read("best.yaml"), "classes")) << read("best.yaml");
    write("mlp.yaml",
          "workload: {model: mlp, image_size: 8}\ncluster: {devices: 2}\nsearch: {stages: [2], mini_batch: 4}\n");
    run_well("search mlp.yaml -o best.yaml");
    EXPECT_TRUE(contains(read("best.yaml"), "  image_size: 8\n  classes: 10\n")) << read("best.yaml");
}

namespace {

// "E|t*3|tL" is E, ttt, tL.
std::string unpacked(const std::string& layout) {
    std::string text;
    for (std::size_t i = 0; i < layout.size(); ++i)
        if (layout[i] == '*') {
            std::size_t used = 0;
            const int times = std::stoi(layout.substr(i + 1), &used);
            text += std::string(static_cast<std::size_t>(times - 1), text.back());
            i += used;
        } else {
            text += layout[i];
        }
    return text;
}

}  // namespace

// Megatron-LM takes a layout with one E in front, one L at the end, and as many t as its model has layers.
TEST_F(SearchFiles, LayoutsHaveTheLayersOfTheModel) {
    const auto layout_of = [this](const std::vector<std::string>& layers, int stages) {
        std::string text = "samples: 1\nlayers:\n";
        for (const std::string& layer : layers)
            text += fmt::format("  - {{name: {}, forward: 1 ms, backward: 2 ms, output: 1 MB}}\n", layer);
        write("named.yaml", text);
        write("named-search.yaml",
              fmt::format("workload: {{model: named.yaml}}\ncluster: {{devices: {0}}}\nrun: {{backend: "
                          "emulated}}\nsearch: {{stages: [{0}], mini_batch: 4, profile_batch: 1}}\n",
                          stages));
        return run_well("search named-search.yaml --json").json()["best"]["megatron_layout"].get<std::string>();
    };
    const auto blocks = [](int count, const std::string& name) {
        std::vector<std::string> layers;
        for (int block = 0; block < count; ++block)
            layers.push_back(name + std::to_string(block));
        return layers;
    };
    for (const std::vector<std::string>& tail :
         std::vector<std::vector<std::string>>{{"head"},
                                               {"norm", "lm_head"},
                                               {"model.final_norm", "output", "loss"},
                                               {"ln_f", "head"},
                                               {},
                                               {"last, part: head"},
                                               {"x, part: loss"}})
        for (const std::string& front : {std::string("embed"), std::string("embedding"), std::string("wte"),
                                         std::string("model.embed_tokens"), std::string("words, part: embedding")}) {
            std::vector<std::string> layers = blocks(9, "t");
            layers.insert(layers.begin(), front);
            layers.insert(layers.end(), tail.begin(), tail.end());
            const std::string layout = unpacked(layout_of(layers, 3));
            EXPECT_EQ(std::count(layout.begin(), layout.end(), 't'), 9) << layout << front;
            EXPECT_EQ(std::count(layout.begin(), layout.end(), 'E'), 1) << layout << front;
            EXPECT_EQ(std::count(layout.begin(), layout.end(), 'L'), 1) << layout << front;
            EXPECT_EQ(std::count(layout.begin(), layout.end(), '|'), 2) << layout << front;
            EXPECT_EQ(layout.front(), 'E');
            EXPECT_EQ(layout.back(), 'L');
        }
    // parts of a block are one layer; a block that is cut has no letter
    EXPECT_EQ(layout_of({"wte", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "ln_f"}, 1), "EttL");
    EXPECT_EQ(layout_of({"wte", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "ln_f"}, 2), "Et|tL");
    EXPECT_EQ(layout_of({"wte", "h.0.attn", "h.0.mlp", "h.0.more"}, 2), "");
    // a norm between blocks is a layer like others; a block is one whatever its name
    EXPECT_EQ(layout_of({"embed", "a", "norm", "b", "head"}, 1), "Et*3L");
    EXPECT_EQ(layout_of({"embed", "a", "head, part: block", "loss"}, 1), "EttL");
    EXPECT_EQ(layout_of({"a, part: block", "b, part: embedding"}, 1), "");
    EXPECT_EQ(layout_of({"a", "b"}, 1), "");
    write("bad.yaml", "layers: [{name: a, part: heads}]\n");
    write("bad-search.yaml", "workload: {model: bad.yaml}\ncluster: {devices: 1}\n");
    EXPECT_TRUE(contains(error_of("simulate bad-search.yaml", 2), "did you mean 'head'?"));
}

TEST_F(SearchFiles, LayoutOfAPublicModelIsWhatMegatronTakes) {
    PIPEWRIGHT_NEED_DATA(path, "field/14-megatron-layout/config.yaml");
    const std::string layout = run_well("search '" + path + "' --json").json()["best"]["megatron_layout"];
    EXPECT_TRUE(layout.ends_with("|tt|ttL")) << layout;
    const std::string letters = unpacked(layout);
    EXPECT_EQ(std::count(letters.begin(), letters.end(), 't'), 42) << layout;
    EXPECT_EQ(std::count(letters.begin(), letters.end(), '|'), 15) << layout;
}

// 3 layers in each of the first 16 stages and 2 in the others: 615 ms, by a longest path computed separately.
TEST_F(SearchFiles, DefaultSplitOfAPublicModelBalancesDevices) {
    PIPEWRIGHT_NEED_DATA(path, "field/02-vpp-uneven-layers/config.yaml");
    const Json simulated = run_well("simulate '" + path + "' --json").json();
    EXPECT_LE(simulated["step_time_ns"], 615'000'000);
    for (const Json& device : simulated["devices"])
        EXPECT_EQ(device["busy_ns"], 480'000'000);
}

TEST_F(SearchFiles, DataParallelismIsNamedAndListedOnce) {
    write("four.yaml",
          "workload: {model: layers.yaml}\ncluster: {devices: 4}\nrun: {backend: emulated}\n"
          "search: {schedules: all, stages: [1], mini_batch: 8, micro_batch_sizes: [2], profile_batch: 1}\n");
    const Said alone = run_well("search four.yaml");
    EXPECT_TRUE(contains(alone.err, "search.replicas: true")) << alone.err;
    const Said shared = run_well("search four.yaml --set search.replicas=true");
    EXPECT_FALSE(contains(shared.err, "search.replicas: true")) << shared.err;
    EXPECT_TRUE(contains(shared.out, "best: data parallel on 4 devices, ")) << shared.out;
    std::size_t rows = 0;
    for (std::size_t at = shared.out.find("parallel on 4"); at < shared.out.find("choices tried"); ++rows)
        at = shared.out.find("parallel on 4", at + 1);
    EXPECT_EQ(rows, 1U) << shared.out;
}

TEST_F(SearchFiles, EqualReplicasAreTheOnlyOnesTried) {
    write("four.yaml",
          "workload: {model: layers.yaml}\ncluster: {devices: 6}\nrun: {backend: emulated}\n"
          "search: {schedules: [1f1b], stages: [1, 2, 3], mini_batch: 12, micro_batch_sizes: [1], profile_batch: 1, "
          "replicas: equal}\n");
    const Json found = run_well("search four.yaml --json -o best.yaml").json();
    std::vector<std::string> shares;
    for (const Json& plan : found["plans"]) {
        const std::string text = plan["plan"];
        const std::size_t at = text.find("replicas ");
        if (text.starts_with("data parallel on "))
            shares.push_back("1: " + text.substr(17, 1));
        else
            shares.push_back(text.substr(text.find("1f1b, ") + 6, 1) + ": " +
                             (at == std::string::npos ? "none" : text.substr(at + 9)));
    }
    std::sort(shares.begin(), shares.end());
    EXPECT_EQ(shares, (std::vector<std::string>{"1: 2", "1: 3", "1: 4", "1: 5", "1: 6", "1: none", "2: 2 2", "2: 3 3",
                                                "2: none", "3: 2 2 2", "3: none"}));
    EXPECT_TRUE(found["every_choice"]);
    EXPECT_EQ(run_well("simulate best.yaml --json").json()["step_time_ns"], found["objective_ns"]);
    EXPECT_TRUE(contains(error_of("search four.yaml --set search.replicas=even", 2), "'search.replicas'"));
}

// A device of a plan without backwards runs only its forwards.
TEST_F(SearchFiles, StagesOfForwardOnlyPlansTakeTheirForwards) {
    write("forward.yaml",
          "workload: {model: layers.yaml}\ncluster: {devices: 1}\nrun: {backend: emulated}\n"
          "search: {schedules: [forward-only], mini_batch: 4, micro_batch_sizes: [1], profile_batch: 1}\n");
    const Json found = run_well("search forward.yaml --json").json();
    EXPECT_EQ(found["best"]["stages"][0]["time_ns"], 2 * (50 + 80 + 110) * 1000);
}

TEST_F(SearchFiles, MemoryIsPrintedInTheUnitsOfItsLimit) {
    const std::string search =
        "search search.yaml --set search.stages=[2] --set search.profile_batch=1 --set cluster.memory=";
    write("search.yaml", "workload: {model: layers.yaml}\ncluster: {devices: 2}\nrun: {backend: emulated}\n");
    const std::string thousands = run_well(search + "'12 GB'").out;
    EXPECT_TRUE(contains(thousands, "memory of 12 GB")) << thousands;
    EXPECT_FALSE(contains(thousands, "iB")) << thousands;
    const std::string powers = run_well(search + "'16 GiB'").out;
    EXPECT_TRUE(contains(powers, "memory of 16 GiB")) << powers;
    EXPECT_TRUE(contains(powers, " MiB")) << powers;
    EXPECT_FALSE(contains(run_well(search + "inf").out, "memory of inf"));
}

TEST_F(SearchFiles, NumbersOfTheCommandLineAreChecked) {
    write("search.yaml", "workload: {model: layers.yaml}\ncluster: {devices: 2}\nrun: {backend: emulated}\n");
    for (const auto& [arguments, said] : std::vector<std::pair<std::string, std::string>>{
             {"search search.yaml --time-limit 0", "'0' is not a number of seconds above 0"},
             {"search search.yaml --time-limit 5s", "'5s' is not a number of seconds above 0"},
             {"search search.yaml --top 0", "'0' is not a whole number from 1 to 1000000"},
             {"simulate uniform.yaml --samples 1e3", "'1e3': write 1000"},
             {"simulate uniform.yaml --samples many", "'many' is not a whole number from 1 to 10000000"},
             {"profile mlp.yaml -o p.yaml --sizes '4;8'", "several are written as in 4,8"},
             {"simulate uniform.yaml --what-if zb-h1", "--what-if pipeline.schedule=zb-h1"},
             {"simulate uniform.yaml --what-if 5", "--what-if 5 has no '='"},
             {"simulate uniform.yaml --set 'sweep.pipeline.micro_batches=[4, 8]'",
              "--set 'sweep={pipeline.micro_batches: [4, 8]}'"},
             {"search search.yaml --set search.stages=[100]", "100 stages for 6 layers"},
             {"search search.yaml --set search.stages=[5]", "5 stages and 2 devices: 1f1b cannot place them"},
             {"simulate uniform.yaml --set cluster.link.bandwidth=0", "is '0', and must be above 0"},
             {"simulate uniform.yaml --set 'cluster.link.bandwidth=0 GB/s'", "is '0 GB/s', and must be above 0"},
             {"simulate mlp.yaml --set workload.model=gpt --set 'pipeline.split=[h.9]'", "there are h.0 to h.3"}}) {
        const std::string error = error_of(arguments, 2);
        EXPECT_TRUE(contains(error, said)) << arguments << '\n' << error;
        EXPECT_LT(error.size(), 700U) << error;
    }
}

}  // namespace pw
