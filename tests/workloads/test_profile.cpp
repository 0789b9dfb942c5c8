// The profile file: it is read back as it was written, and mistakes are named with their place.
#include "tests/support/temporary_folder.h"
#include "workloads/costs/costs.h"
#include "workloads/error.h"
#include "workloads/models/resnet.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

using namespace pw;

namespace {

class ProfileFile : public testing::Test {
protected:
    std::string written(const Profile& profile) {
        write_profile(profile, path_);
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    // Writes `text` and expects an error that holds all `parts`.
    void expect_refused(const std::string& text, const std::vector<std::string>& parts) {
        std::ofstream(path_) << text;
        try {
            read_profile(path_);
            ADD_FAILURE() << "read without complaint:\n" << text;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::BadInput);
            for (const std::string& part : parts)
                EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
                    << "'" << part << "' is not in: " << error.what();
        }
    }

    // The good file with the first `from` replaced.
    std::string with(const std::string& from, const std::string& to) {
        std::string text = written(sample());
        const auto at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from << " is not in:\n" << text;
        return at == std::string::npos ? text : text.replace(at, from.size(), to);
    }

    static Profile sample() {
        Profile profile;
        profile.model = "mlp";
        profile.backend = "cpu";
        profile.machine = "a \"quoted\" name\\with\n\tspecials: # é";
        profile.date = "2024-05-06T07:08:09Z";
        profile.input = {3, 32, 31};
        profile.classes = 10;
        profile.threads_per_device = 2;
        profile.precision = Precision::Bf16;
        profile.cpu_share = 0.875;
        profile.reference = {21'000'000, 700'000};
        profile.dispatch = {1500, 20};
        profile.link = {12'345, 1e10 / 3, 65'537};
        profile.sums = {345, 1e9 / 7};
        profile.sent_copies = true;
        profile.convolutions = {{{.pass = ConvolutionPass::BackwardWeight,
                                  .samples = 4,
                                  .channels = 3,
                                  .height = 32,
                                  .width = 31,
                                  .outputs = 64,
                                  .kernel = 7,
                                  .stride = 2,
                                  .padding = 3,
                                  .multiprocessors = 132},
                                 1},
                                {{.samples = 16, .channels = 64, .multiprocessors = 32}, 0}};
        profile.data = {{1, {1001, 3}}, {4, {4000, 0}}};
        profile.data_bytes = {{1, 64}, {4, 1 << 20}};
        Ns time = 123'456'789;
        for (const char* name : {"fc1", "relu1", "loss"}) {
            LayerProfile layer{.name = name, .times = {}, .bytes = {}, .update = {time++, 1}};
            for (const int samples : {1, 4, 16}) {
                LayerTimes& times = layer.times[samples];
                for (Measured* pass : {&times.forward, &times.backward_input, &times.backward_weight, &times.backward,
                                       &times.accumulate, &times.recompute})
                    *pass = {time++ * samples, time % 7};
                layer.bytes[samples] = {.weights = 64 * 1025,
                                        .statistics = 128,
                                        .output = 64 * samples,
                                        .saved_until_input = 0,
                                        .kept_until_weight = 192,
                                        .scratch = Bytes{1} << 33,
                                        .joins = time % 2 == 0};
            }
            profile.layers.push_back(layer);
        }
        return profile;
    }

    const TemporaryFolder folder_;
    const std::string path_ = (folder_.path() / "profile.yaml").string();
};

}  // namespace

TEST_F(ProfileFile, IsReadBackExactly) {
    write_profile(sample(), path_);
    EXPECT_EQ(read_profile(path_), sample());
    const std::string once = written(sample());
    EXPECT_EQ(written(read_profile(path_)), once);
}

TEST_F(ProfileFile, NamesAnOptimizerOtherThanSgd) {
    Profile profile = sample();
    EXPECT_EQ(written(profile).find("optimizer"), std::string::npos);
    profile.optimizer = OptimizerKind::AdamW;
    EXPECT_NE(written(profile).find("  optimizer: adamw\n"), std::string::npos);
    EXPECT_EQ(read_profile(path_), profile);
}

TEST_F(ProfileFile, TakesTheLinkForSumsThatItLacks) {
    const std::string text = with("  sums: {", "  # {");
    std::ofstream(path_) << text;
    EXPECT_EQ(read_profile(path_).sums, sample().link);
}

TEST_F(ProfileFile, HoldsALinkBetweenHostsAndBandwidthsBySize) {
    Profile profile = sample();
    profile.between_hosts = Link{10'000'000, 1e9 / 7, 0, {{1 << 10, 1e7 / 3}, {1 << 16, 1e6 / 3}, {1 << 30, 1e9 / 7}}};
    write_profile(profile, path_);
    EXPECT_EQ(read_profile(path_), profile);
    std::swap(profile.link, *profile.between_hosts);
    write_profile(profile, path_);
    EXPECT_EQ(read_profile(path_), profile);
}

TEST_F(ProfileFile, RefusesBrokenLinks) {
    const std::string link = with("  link: {", "  between: {bandwidths: [], latency: 1 ns}\n  link: {");
    expect_refused(link, {"'profile.between.bandwidths' is empty"});
    expect_refused(with("  link: {", "  between: {bandwidth: 1 GB/s}\n  link: {"), {"'profile.between.latency'"});
    expect_refused(with("  link: {bandwidth", "  link: {bandwidths: [{bytes: 1 B, bandwidth: 1 B/s}], bandwidth"),
                   {"'profile.link' has bandwidths by size, and a bandwidth"});
    const std::string sizes = "[{bytes: 2 B, bandwidth: 1 B/s}, {bytes: 1 B, bandwidth: 1 B/s}]";
    expect_refused(with("  link: {", "  between: {latency: 1 ns, bandwidths: " + sizes + "}\n  link: {"),
                   {"sizes ascend"});
}

TEST_F(ProfileFile, HoldsAnInfiniteLinkAndEmptyText) {
    Profile profile = sample();
    profile.link = {0, std::numeric_limits<double>::infinity()};
    profile.machine = profile.date = "";
    profile.sent_copies = false;
    write_profile(profile, path_);
    EXPECT_EQ(read_profile(path_), profile);
}

TEST_F(ProfileFile, RefusesConvolutionsThatAreNone) {
    expect_refused(with("pass: backward_weight", "pass: sideways"),
                   {"sideways", "forward, backward_input, backward_weight", ".yaml:24:12"});
    expect_refused(with("plan: 1}", "plan: -1}"), {"plan", "-1"});
    expect_refused(with("plan: 1}", "plan: 1000}"), {"plan", "1000"});
    expect_refused(with(", plan: 1}", "}"), {"'convolutions[0].plan' is missing"});
    expect_refused(with("kernel: 7", "kernel: 0"), {"kernel", "0"});
    expect_refused(with("padding: 3", "padding: all"), {"padding", "all"});
    expect_refused(with("multiprocessors: 132", "sms: 132"), {"sms", "multiprocessors"});
    Profile twice = sample();
    twice.convolutions.push_back(twice.convolutions[1]);
    expect_refused(written(twice), {"is listed twice in 'convolutions'", "keep one of them"});
}

TEST_F(ProfileFile, NeedsNoConvolutions) {
    Profile profile = sample();
    profile.convolutions.clear();
    EXPECT_EQ(written(profile).find("convolutions"), std::string::npos);
    EXPECT_EQ(read_profile(path_), profile);
}

TEST_F(ProfileFile, HoldsTheAnalyticProfileOfAWholeModel) {
    const Profile profile = analytic_profile(build_resnet50(64, 10), 4, {});
    write_profile(profile, path_);
    EXPECT_EQ(read_profile(path_), profile);
}

TEST_F(ProfileFile, NeedsNoSpreadNorWholeBackward) {
    std::string text = with(", spread: 20 ns", "");
    const auto at = text.find("        backward: ");
    text.erase(at, text.find('\n', at) + 1 - at);
    std::ofstream(path_) << text;
    const Profile profile = read_profile(path_);
    EXPECT_EQ(profile.dispatch.spread, 0);
    EXPECT_EQ(profile.layers[0].times.at(1).backward, Measured{});
}

TEST_F(ProfileFile, RefusesAnotherVersionFirst) {
    expect_refused(with("version: 1\n  model: \"mlp\"", "version: 2\n  modell: \"mlp\""),
                   {"version '2'", "reads version 1", path_ + ":2:"});
    expect_refused(with("  version: 1\n", ""), {"'profile.version' is missing"});
}

TEST_F(ProfileFile, NamesUnknownKeysWithTheirPlace) {
    expect_refused(with("sent_copies", "sent_copy"), {"unknown key 'sent_copy'", path_ + ":16:", "'sent_copies'"});
    expect_refused(with("        forward:", "        forwrad:"), {"unknown key 'forwrad'", "'forward'", "is missing"});
    expect_refused(with("layers:", "layer:"), {"unknown key 'layer'", "'layers' is missing"});
}

TEST_F(ProfileFile, NamesWhatIsMissing) {
    expect_refused(with("name: \"fc1\"\n    update: {", "update: {"), {"'layers[0].name' is missing"});
    expect_refused(with("  classes: 10\n", ""), {"'profile.classes' is missing"});
    expect_refused(with("scratch: ", "# scratch: "), {});
    const std::string text = written(sample());
    expect_refused(text.substr(0, text.find("layers:")), {"'layers' is missing"});
    expect_refused(text.substr(0, text.find("layers:")) + "layers: []\n", {"no layers"});
}

TEST_F(ProfileFile, RefusesBrokenValues) {
    expect_refused(with("median: 1500 ns", "median: -1500 ns"), {"'profile.dispatch.median'", "-1500 ns"});
    expect_refused(with("median: 1500 ns", "median: 1500"), {"without a unit"});
    expect_refused(with("median: 1500 ns", "median: 3601 s"), {"longer than an hour"});
    expect_refused(with("bytes: 64 B", "bytes: 65 B"), {"65 B", "multiple of 64"});
    expect_refused(with("bytes: 64 B", "bytes: inf"), {"16 TiB"});
    expect_refused(with("channels: 3", "channels: 0"), {"at least 1"});
    expect_refused(with("- samples: 1\n", "- samples: 0\n"), {"at least 1"});
    expect_refused(with("sent_copies: true", "sent_copies: yes"), {"write true"});
}

TEST_F(ProfileFile, RefusesRepetitions) {
    expect_refused(with("- samples: 4\n", "- samples: 1\n"), {"1 samples are listed twice"});
    expect_refused(with("\"relu1\"", "\"fc1\""), {"layer 'fc1' is listed twice"});
}

TEST_F(ProfileFile, RefusesOtherShapes) {
    for (const char* text : {"", "[]", "3", "profile: 3\nlayers: []", "profile: {version: 1}\nlayers: 3",
                             "profile: [1]\nlayers: {}", "profile: {version: 1}\nlayers: [3, [], {}]", "\t{", "{a: 1"})
        expect_refused(text, {});
}

TEST_F(ProfileFile, CollectsEveryMistake) {
    std::string text = with("median: 1500 ns", "median: soon");
    text.replace(text.find("classes: 10"), 11, "classes: ten");
    expect_refused(text, {"'soon'", "'ten'"});
}

TEST(ProfileWriter, NamesTheFileThatCannotBeWritten) {
    try {
        write_profile({}, "/nonexistent/folder/profile.yaml");
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::RunFailed);
        EXPECT_NE(std::string(error.what()).find("/nonexistent/folder/profile.yaml"), std::string::npos);
    }
}

TEST(ProfileReader, NamesTheFileThatIsNotThere) {
    try {
        read_profile("/nonexistent/profile.yaml");
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        EXPECT_NE(std::string(error.what()).find("/nonexistent/profile.yaml"), std::string::npos);
    }
}
