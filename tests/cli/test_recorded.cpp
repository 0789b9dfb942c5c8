// Output of pipewright for some five hundred configs, compared with tests/cli/recorded/: a change of structure does not
// change it. Every fifth config is predicted, and every fifteenth is run; PIPEWRIGHT_SOAK=1 computes
// all, PIPEWRIGHT_RECORD=1 writes the files again.
#include "tests/support/cli_rig.h"
#include "tests/support/recorded_configs.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace pw {
namespace {

const std::filesystem::path kFolder = PIPEWRIGHT_SOURCE_DIR "/tests/cli/recorded";

std::string text_of(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
}

// The line of /proc/cpuinfo that starts with `key`, without the key.
std::string of_processor(const std::string& key) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(key))
            return line.substr(line.find(':') + 2);
    return "unknown";
}

bool records() { return std::getenv("PIPEWRIGHT_RECORD") != nullptr; }

// One config in this many is predicted, and one is run.
std::size_t predictions_stride() { return soaks() || records() ? 1 : 5; }
std::size_t weights_stride() { return soaks() || records() ? 1 : 15; }

std::string instruction_set() {
    const std::string flags = of_processor("flags") + " ";
    return flags.find(" avx512bw ") != std::string::npos ? "avx512"
           : flags.find(" avx2 ") != std::string::npos   ? "avx2"
                                                         : "sse";
}

class Recorded : public Cli {
protected:
    // Makes one line per config, of every `stride`-th config, in order, on all cores.
    template <class Line>
    std::string lines_of(const std::vector<RecordedConfig>& configs, Line line, std::size_t stride = 1) const {
        std::vector<std::string> lines(configs.size());
        std::atomic<std::size_t> next = 0;
        const auto work = [&] {
            for (std::size_t at = stride * next++; at < configs.size(); at = stride * next++) {
                const std::string own = std::to_string(at);
                std::filesystem::create_directory(file(own));
                for (const auto& [name, content] : recorded_files())
                    write(own + "/" + name, content);
                lines[at] = fmt::format("{}: {}\n", configs[at].name(), line(configs[at], own));
                std::filesystem::remove_all(file(own));
            }
        };
        std::vector<std::thread> threads;
        for (unsigned k = 0; k < std::max(1U, std::thread::hardware_concurrency()); ++k)
            threads.emplace_back(work);
        for (std::thread& thread : threads)
            thread.join();
        return fmt::format("{}", fmt::join(lines, ""));
    }

    // Returns the output of a command in the folder `own`; if it is refused, the code and the first line.
    Json answer(const std::string& own, const std::string& arguments) const {
        const std::string command = fmt::format("cd '{}' && '{}' {} --json >out 2>err </dev/null", file(own).string(),
                                                PIPEWRIGHT_BINARY, arguments);
        const int status = std::system(command.c_str());
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (code == 0)
            return Json::parse(read(own + "/out"));
        const std::string said = read(own + "/err"), error = said.substr(std::min(said.find("error: "), said.size()));
        return {{"refused", fmt::format("refused ({}) {}", code, error.substr(0, error.find('\n')))}};
    }

    static std::string prediction_in(const Json& json) {
        if (json.contains("refused"))
            return json["refused"];
        if (json.contains("points")) {
            std::vector<std::string> points;
            for (const Json& point : json["points"])
                points.push_back(point.contains("plan_hash") ? prediction_in(point) : point.dump());
            return fmt::format("{}", fmt::join(points, " | "));
        }
        std::vector<std::int64_t> peaks;
        if (json.contains("peak_memory_bytes"))  // of a point of a sweep, the largest
            peaks.push_back(json["peak_memory_bytes"]);
        else
            for (const Json& device : json["devices"])
                peaks.push_back(device["peak_memory_bytes"]);
        return fmt::format("{} {} ns, {} B", json["plan_hash"].get<std::string>(), json["step_time_ns"].dump(),
                           fmt::join(peaks, " "));
    }

    std::string weights_lines(const std::vector<RecordedConfig>& configs, const std::string& backend) const {
        const auto weights = [&](const RecordedConfig& config, const std::string& own) {
            const Json json = answer(own, config.arguments("run") + " --set run.backend=" + backend);
            return json[json.contains("refused") ? "refused" : "weights_hash"].get<std::string>();
        };
        return lines_of(configs, weights, weights_stride());
    }

    // `now` has the lines of every `stride`-th config, after `first` lines of its own.
    static void compare(const std::string& name, const std::string& now, std::size_t stride = 1,
                        std::size_t first = 0) {
        const std::filesystem::path path = kFolder / name;
        if (records()) {
            std::filesystem::create_directories(kFolder);
            std::ofstream(path) << now;
        }
        std::istringstream recorded(text_of(path)), said(now);
        std::string a, b;
        for (std::size_t line = 0; std::getline(recorded, a); ++line)
            if (line < first || (line - first) % stride == 0) {
                ASSERT_TRUE(std::getline(said, b)) << a;
                EXPECT_EQ(b, a);
            }
        EXPECT_FALSE(std::getline(said, b)) << b;
    }
};

TEST_F(Recorded, Predictions) {
    std::vector<RecordedConfig> configs = recorded_plans();
    for (const auto& entry : std::filesystem::directory_iterator(PIPEWRIGHT_SOURCE_DIR "/workloads/configs"))
        configs.push_back({entry.path().string(), {}});
    std::sort(configs.begin(), configs.end(), [](const auto& a, const auto& b) { return a.name() < b.name(); });
    const auto prediction = [&](const RecordedConfig& config, const std::string& own) {
        return prediction_in(answer(own, config.arguments("simulate")));
    };
    compare("predictions.txt", lines_of(configs, prediction, predictions_stride()), predictions_stride());
}

TEST_F(Recorded, WeightsOfEmulatedDevices) {
    compare("emulated.txt", weights_lines(recorded_plans(), "emulated"), weights_stride());
}

TEST_F(Recorded, WeightsOfTheReference) {
    compare("reference.txt", weights_lines(recorded_runs(), "reference"), weights_stride());
}

// oneDNN chooses its loops by the instruction set and by the sizes of the caches: other processors with the same
// instruction set may add in another order.
TEST_F(Recorded, WeightsOfTheCpu) {
    const std::string file = fmt::format("cpu-{}.txt", instruction_set()), processor = of_processor("model name");
    if (std::getenv("PIPEWRIGHT_RECORD") == nullptr && !text_of(kFolder / file).starts_with(processor + '\n'))
        GTEST_SKIP() << file << " was recorded on another processor than " << processor;
    std::vector<RecordedConfig> configs = recorded_runs();
    if (!records())  // the file may be older than some configs
        std::erase_if(configs, [recorded = text_of(kFolder / file)](const RecordedConfig& config) {
            return recorded.find('\n' + config.name() + ": ") == recorded.npos;
        });
    compare(file, processor + '\n' + weights_lines(configs, "cpu"), weights_stride(), 1);
}

TEST_F(Recorded, Searches) {
    compare("searches.txt", lines_of(recorded_searches(), [&](const RecordedConfig& config, const std::string& own) {
                Json json = answer(own, config.arguments("search"));
                if (json.contains("refused"))
                    return json["refused"].get<std::string>();
                for (const char* measured : {"seconds", "candidates"})
                    json.erase(measured);
                return json.dump();
            }));
}

}  // namespace
}  // namespace pw
