// The lengths of micro-batches, and the dispatcher of devices, in a config.
#include "job/build.h"
#include "job/config/config.h"
#include "job/job.h"
#include "job/load.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

using Lengths = std::vector<MicroBatchLength>;

Lengths lengths_of(const std::string& list) {
    return load("workload: {model: uniform}\npipeline: {micro_batches: 3, micro_batch_lengths: " + list + "}")
        .pipeline.micro_batch_lengths;
}

// Writes the lengths to a file next to a config with three micro-batches, and reads that config.
Lengths lengths_in(const std::string& csv) {
    const TemporaryFolder folder;
    folder.write("lengths.csv", csv);
    const std::string path = folder.write("cfg.yaml",
                                          "workload: {model: uniform}\n"
                                          "pipeline: {micro_batches: 3, micro_batch_lengths: lengths.csv}");
    return load_config(path, {}).pipeline.micro_batch_lengths;
}

std::string refusal_of(const std::string& csv) {
    try {
        lengths_in(csv);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(MicroBatchLengths, AreANumberForAllOrOnePerOperation) {
    EXPECT_EQ(lengths_of("[1, 0.5, 2]"), (Lengths{{1, 1, 1, 1}, {0.5, 0.5, 0.5, 0.5}, {2, 2, 2, 2}}));
    EXPECT_EQ(lengths_of("[{F: 2}, {F: 2, B: 3, bytes: 1}, {F: 1, B: 2, W: 4}]"),
              (Lengths{{2, 2, 2, 2}, {2, 3, 3, 1}, {1, 2, 4, 1}}));
}

TEST(MicroBatchLengths, AreRowsOfAFileInAnyOrder) {
    EXPECT_EQ(lengths_in("micro_batch,tokens\n1,1024\n0,2048\n2,3072\n"),
              (Lengths{{1, 1, 1, 1}, {0.5, 0.5, 0.5, 0.5}, {1.5, 1.5, 1.5, 1.5}}));
    EXPECT_EQ(lengths_in("micro_batch, factor, B\r\n0, 1, 2\r\n1, 2, 5\r\n\r\n2, 3, 9\r\n"),
              (Lengths{{1, 2, 2, 1}, {2, 5, 5, 2}, {3, 9, 9, 3}}));
    EXPECT_EQ(lengths_in("F,I,W,bytes,micro_batch\n1,2,3,4,0\n5,6,7,8,1\n1,1,1,1,2"),
              (Lengths{{1, 2, 3, 4}, {5, 6, 7, 8}, {1, 1, 1, 1}}));
}

TEST(MicroBatchLengths, ArePrintedAsTheyAreRead) {
    const std::string list = "[0.3, {F: 1, I: 2, W: 0.1, bytes: 7}, 2]";
    const Config config =
        load("workload: {model: uniform}\npipeline: {micro_batches: 3, micro_batch_lengths: " + list + "}");
    EXPECT_NE(config.yaml.find("micro_batch_lengths: " + list), std::string::npos) << config.yaml;
    EXPECT_EQ(load(config.yaml).pipeline.micro_batch_lengths, config.pipeline.micro_batch_lengths);
    EXPECT_EQ(load("workload: {model: uniform}").yaml.find("lengths"), std::string::npos);
}

TEST(MicroBatchLengths, MistakesHaveTheirPlace) {
    const auto refused = [](const std::string& list) {
        try {
            lengths_of(list);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_NE(refused("[1, 2]").find("has the lengths of 2 micro-batches, but there are 3"), std::string::npos);
    EXPECT_NE(refused("[1, 2]").find("cfg.yaml:2:"), std::string::npos);
    EXPECT_NE(refused("[1, 0, 1]").find("micro_batch_lengths[1]"), std::string::npos);
    EXPECT_NE(refused("[1, {B: 1}, 1]").find("has no F"), std::string::npos);
    EXPECT_NE(refused("nowhere.csv").find("there is no file"), std::string::npos);
    EXPECT_NE(refused("[]").find("is empty"), std::string::npos);
    EXPECT_NE(refusal_of("micro_batch,tokens\n0,1\n1,x\n2,1").find("lengths.csv:3:3"), std::string::npos);
    EXPECT_NE(refusal_of("micro_batch,tokens\n0,1\n1,0\n2,1").find("'0' is not a length"), std::string::npos);
    EXPECT_NE(refusal_of("micro_batch,tokens\n0,1\n0,1\n2,1").find("two rows"), std::string::npos);
    EXPECT_NE(refusal_of("micro_batch,tokens\n0,1\n3,1\n2,1").find("micro-batch 3"), std::string::npos);
    EXPECT_NE(refusal_of("micro_batch,tokens\n0,1\n1\n2,1").find("1 cells"), std::string::npos);
    EXPECT_NE(refusal_of("micro_batch,length\n0,1").find("no column 'length'"), std::string::npos);
    EXPECT_NE(refusal_of("micro_batch,B\n0,1").find("one of tokens, factor and F"), std::string::npos);
    EXPECT_NE(refusal_of("").find("there are no lengths"), std::string::npos);
}

TEST(Dispatcher, IsOneOfTwo) {
    const auto dispatcher = [](const std::string& cluster) {
        return load("workload: {model: uniform}\ncluster: {devices: 2" + cluster + "}");
    };
    using Dispatcher = ClusterConfig::Dispatcher;
    EXPECT_EQ(dispatcher("").cluster.dispatcher, Dispatcher::PerDevice);
    EXPECT_EQ(dispatcher(", dispatcher: per device").cluster.dispatcher, Dispatcher::PerDevice);
    const Config shared = dispatcher(", dispatcher: per host, dispatch: 3 us");
    EXPECT_EQ(shared.cluster.dispatcher, Dispatcher::PerHost);
    EXPECT_NE(shared.yaml.find("  dispatcher: per host\n"), std::string::npos);
    EXPECT_EQ(dispatcher("").yaml.find("dispatcher"), std::string::npos);
    EXPECT_THROW(dispatcher(", dispatcher: per rack"), Error);
    Notices notices;
    EXPECT_TRUE(make_job(shared, notices).costs.cluster->dispatch_by_host);
    EXPECT_FALSE(make_job(dispatcher(", dispatch: 3 us"), notices).costs.cluster->dispatch_by_host);
}

}  // namespace
}  // namespace pw
