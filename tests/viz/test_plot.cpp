#include "schedules/trace/trace_json.h"
#include "tests/support/sample_traces.h"
#include "tests/support/temporary_folder.h"
#include "viz/formats.h"
#include "viz/gnuplot.h"
#include "viz/plot.h"
#include "workloads/error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

namespace pw {
namespace {

namespace fs = std::filesystem;
using Style = Curve::Style;

std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

#define NEED_GNUPLOT()  \
    if (!has_gnuplot()) \
    GTEST_SKIP() << "gnuplot not found; apt-get install gnuplot-nox to run this test"

// Every test draws into a folder of its own.
class Plot : public testing::Test {
protected:
    std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

    std::vector<Panel> both() const {
        return {{&predicted_, "predicted, 1f1b: step 25.7 ms"}, {&measured_, "measured, 1f1b: step 27.0 ms"}};
    }

    TemporaryFolder folder_;
    const Trace predicted_ = sample_trace({.devices = 2});
    const Trace measured_ = sample_trace({.devices = 2, .label = "measured", .jitter = 0.1});
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
        EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "'";
}

template <class Action>
void expect_error(ExitCode code, const std::vector<std::string>& message, Action&& action) {
    try {
        action();
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        expect_parts(error.what(), message);
    }
}

// gnuplot

TEST_F(Plot, SvgHasRealTextForEveryLabel) {
    NEED_GNUPLOT();
    plot(both(), file("steps.svg"));
    expect_parts(contents(file("steps.svg")),
                 {"<svg", ">device 0 · stage 0<", ">device 1 · stage 1<", ">predicted, 1f1b: step 25.7 ms<",
                  ">measured, 1f1b: step 27.0 ms<", ">7<", ">time in ms<", ">forward<", ">backward<", ">gradients<",
                  ">Memory<", ">200 MiB<"});
}

TEST_F(Plot, EveryGnuplotFormatIsMade) {
    NEED_GNUPLOT();
    for (const char* name : {"a.svg", "a.png", "a.pdf"}) {
        plot(both(), file(name));
        EXPECT_GT(fs::file_size(file(name)), 1000u) << name;
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 3) << "nothing else is left";
    EXPECT_EQ(contents(file("a.png")).substr(1, 3), "PNG");
    EXPECT_EQ(contents(file("a.pdf")).substr(0, 4), "%PDF");
}

TEST_F(Plot, TheScriptMakesThePictureAgainWhereverItIsMoved) {
    NEED_GNUPLOT();
    plot(both(), file("picture.svg"));
    const fs::path elsewhere = folder_.path() / "elsewhere";
    fs::create_directories(elsewhere);
    plot(both(), (elsewhere / "picture.gp").string());
    ASSERT_EQ(std::system(("cd '" + elsewhere.string() + "' && gnuplot picture.gp").c_str()), 0);
    EXPECT_EQ(contents(elsewhere / "picture.svg"), contents(file("picture.svg")));
}

TEST_F(Plot, SameTracesGiveTheSameBytes) {
    NEED_GNUPLOT();
    for (const char* name : {"a.svg", "a.html", "a.txt"})
        plot(both(), file(name));
    std::map<fs::path, std::string> first;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
        first[entry.path()] = contents(entry.path());
    EXPECT_EQ(first.size(), 3u);
    for (const char* name : {"a.svg", "a.html", "a.txt"})
        plot(both(), file(name));
    for (const auto& [path, text] : first)
        EXPECT_EQ(contents(path), text) << path;
}

TEST_F(Plot, NamesAndTitlesAreTextNotCommands) {
    NEED_GNUPLOT();
    const Panel panel{&predicted_, "it's `touch x` $HOME \"q\" a_b^c {d} <e> & \\ % 100 @\nnext"};
    plot({panel}, file("it's odd; `name`.svg"));
    expect_parts(contents(file("it's odd; `name`.svg")),
                 {"it's `touch x` $HOME", "a_b^c {d} &lt;e> &amp; \\ % 100 @ next"});
}

TEST_F(Plot, GrowsWithDevicesAndDropsNumbersThatDoNotFit) {
    NEED_GNUPLOT();
    const Trace large = sample_trace({.devices = 16, .microbatches = 64});
    plot({{&large, "large"}}, file("large.svg"));
    plot({{&predicted_, "small"}}, file("small.svg"));
    const auto height = [&](const char* name) {
        const std::string text = contents(file(name));
        return std::atoi(text.c_str() + text.find("height=\"") + 8);
    };
    EXPECT_GT(height("large.svg"), 2 * height("small.svg"));
    expect_parts(contents(file("large.svg")), {">device 15 · stage 15<", ">63<"});
    plot({{&large, "large"}}, file("large.gp"));
    const std::string data = contents(file("large.gp"));
    EXPECT_EQ(data.find("# text.ffffff"), std::string::npos);  // no forward is wide enough for its number
}

TEST_F(Plot, ShowsWeightVersionsWhereThereAreSeveral) {
    NEED_GNUPLOT();
    const Trace stash = sample_trace({.asynchronous = true});
    plot({{&stash, "pipedream"}}, file("stash.svg"));
    expect_parts(contents(file("stash.svg")), {">v0<", ">v7<"});
    plot({{&predicted_, "1f1b"}}, file("flush.svg"));
    EXPECT_EQ(contents(file("flush.svg")).find(">v0<"), std::string::npos);
}

TEST_F(Plot, SaysWhatIsMissingWithoutGnuplot) {
    const std::string path = std::getenv("PATH");
    setenv("PATH", folder_.path().c_str(), 1);
    EXPECT_FALSE(has_gnuplot());
    expect_error(ExitCode::RunFailed, {"gnuplot not found", "apt-get install gnuplot-nox"},
                 [&] { plot(both(), file("steps.svg")); });
    setenv("PATH", path.c_str(), 1);
    EXPECT_TRUE(fs::is_empty(folder_.path()));
}

// A gnuplot of our own, which cannot: its words are passed on, and its folder is gone.
TEST_F(Plot, PassesOnWhatGnuplotComplainsAbout) {
    fs::create_directories(file("bin"));
    fs::create_directories(file("temporary"));
    std::ofstream(file("bin/gnuplot")) << "#!/bin/sh\necho 'line 7: no terminal of that name' >&2\nexit 1\n";
    fs::permissions(file("bin/gnuplot"), fs::perms::owner_all);
    const std::string path = std::getenv("PATH");
    setenv("PATH", (file("bin") + ":" + path).c_str(), 1);
    setenv("TMPDIR", file("temporary").c_str(), 1);
    expect_error(ExitCode::RunFailed, {"gnuplot failed to draw", "steps.svg", "line 7: no terminal of that name"},
                 [&] { plot(both(), file("steps.svg")); });
    unsetenv("TMPDIR");
    setenv("PATH", path.c_str(), 1);
    EXPECT_TRUE(fs::is_empty(file("temporary")));
    EXPECT_FALSE(fs::exists(file("steps.svg")));
}

// The data come in the script, where titles must stay data.
TEST_F(Plot, TitlesOfCurvesAreTextNotCommands) {
    NEED_GNUPLOT();
    const std::string title = "`touch " + file("x") + "` $data @x \\";
    plot_curves({{title, {1, 2}}, {"end_of_data", {2, 1}}}, "x", "y", file("curves.svg"));
    expect_parts(contents(file("curves.svg")), {"`touch ", "$data @x \\", ">end_of_data<"});
    EXPECT_FALSE(fs::exists(file("x")));
}

TEST_F(Plot, APictureThatGnuplotCutsOffIsAFailure) {
    NEED_GNUPLOT();
    const std::string script = gnuplot_output(file("cut.svg"), 400, 300) + "plot x\nset output\n";
    draw_by_gnuplot(file("cut.svg"), script, "");
    const std::string before = contents(file("cut.svg"));
    expect_error(ExitCode::RunFailed, {"cannot write", "cut.svg"},
                 [&] { draw_by_gnuplot(file("cut.svg"), script + "system(\"truncate -s 100 picture.svg\")\n", ""); });
    EXPECT_EQ(contents(file("cut.svg")), before);
}

// Pages, text, traces

TEST_F(Plot, ThePageIsSelfContained) {
    plot(both(), file("steps.html"));
    const std::string page = contents(file("steps.html"));
    expect_parts(page, {"<!doctype html>", "device 1 · stage 1", "measured, 1f1b", "backward", "weight version",
                        "micro-batch", "duration", "</html>"});
    for (const char* outside : {"http:", "https:", "src=", "import ", "fetch("})
        EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

TEST_F(Plot, ATitleCannotLeaveThePagesScript) {
    plot({{&predicted_, "</script><script>alert(1)</script>"}}, file("title.html"));
    const std::string page = contents(file("title.html"));
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    const std::size_t begin = page.find("const picture = ") + 16, end = page.find(";\n\"use strict\"");
    const auto picture = nlohmann::json::parse(page.substr(begin, end - begin));
    EXPECT_EQ(picture["panels"][0]["title"], "</script><script>alert(1)</script>");
    EXPECT_EQ(picture["panels"][0]["rows"].size(), 2u);
}

TEST_F(Plot, TheGridHasOneLineForEachDevice) {
    const Trace tiny =
        sample_trace({.devices = 2, .microbatches = 2, .forward = 1'000'000, .backward = 2'000'000, .transfer = 0});
    plot({{&tiny, "tiny"}}, file("tiny.txt"));
    EXPECT_EQ(contents(file("tiny.txt")), text_of({{&tiny, "tiny"}}));
    EXPECT_EQ(contents(file("tiny.txt")),
              "tiny\n"
              "device 0, stage 0 |F0----F1-----             B0-----------      B1-----------U1| peak 219 MiB\n"
              "device 1, stage 1 |      F0-----B0-----------F1----B1-----------U1             | peak 195 MiB\n"
              "                   0 ms         2            4            6            8\n"
              "                   F forward  B backward  U update\n");
}

TEST_F(Plot, JsonIsTheTraceItself) {
    plot({{&predicted_, "one"}}, file("one.json"));
    EXPECT_TRUE(read_trace(file("one.json")) == predicted_);
    expect_error(ExitCode::BadInput, {"2 traces", "one trace"}, [&] { plot(both(), file("two.json")); });
}

// The page knows operations by what its data says of them.
TEST_F(Plot, ThePageIsToldWhatItDrawsOfEveryOperation) {
    plot(both(), file("ops.html"));
    const std::string page = contents(file("ops.html"));
    const std::size_t begin = page.find("const picture = ") + 16, end = page.find(";\n\"use strict\"");
    const auto picture = nlohmann::json::parse(page.substr(begin, end - begin));
    for (int number = 0; number <= static_cast<int>(Op::RecvBackward); ++number) {
        const auto& told = picture["ops"][number];
        const Op op = static_cast<Op>(number);
        EXPECT_EQ(told["letters"], letters_of(op));
        EXPECT_EQ(told["transfer"], is_transfer(op));
        EXPECT_EQ(told["receive"], is_recv(op));
        EXPECT_EQ(told["numbered"], is_compute(op));
        EXPECT_EQ(told["hatched"], op == Op::Recompute);
    }
    EXPECT_EQ(picture["fields"][1], "start");
    EXPECT_EQ(picture["panels"][0]["rows"][0]["tasks"][0].size(), picture["fields"].size());
    EXPECT_EQ(picture["legend"].back()["words"], "gradients");
}

// Every row of the table

TEST_F(Plot, EveryFormatShowsTimelinesAndCharts) {
    const Chart bars{{{"load", {2, 3}, {0, 1}, Curve::Style::Bars, {"", "CPU"}}, {"most", {3, 3}, {-0.5, 1.5}}},
                     {"stage", Quantity::Number, false, {0, 1}},
                     {"load"}};
    for (const Format& format : kFormats) {
        EXPECT_NE(plot_formats().find(format.suffix.substr(1)), std::string::npos);
        const std::string timeline = file("timeline") + std::string(format.suffix);
        const std::string chart = file("chart") + std::string(format.suffix);
        if (format.timeline == timeline_by_gnuplot && format.suffix != ".gp" && !has_gnuplot())
            continue;
        plot({{&predicted_, "one"}}, timeline);
        plot_chart(bars, chart);
        EXPECT_GT(fs::file_size(timeline), 100u) << timeline;
        EXPECT_GT(fs::file_size(chart), 50u) << chart;
    }
    EXPECT_EQ(plot_formats(), "svg, png, pdf, html, txt, json, gp");
}

// Bars begin at zero, are as high as their values, and stand over their numbers.
TEST_F(Plot, BarsBeginAtZero) {
    const Chart bars{{{"load", {2, 4}, {0, 1}, Style::Bars}}, {"stage", Quantity::Number, false, {0, 1}}, {"load"}};
    plot_chart(bars, file("bars.html"));
    const std::string page = contents(file("bars.html"));
    std::vector<double> heights;
    for (std::size_t at = 0; (at = page.find("<rect x=", at)) != std::string::npos; ++at)
        heights.push_back(std::atof(page.c_str() + page.find("height=\"", at) + 8));
    ASSERT_EQ(heights.size(), 3u);  // the last one in the legend
    EXPECT_NEAR(heights[1], 2 * heights[0], 0.02);
}

// What cannot be drawn

TEST_F(Plot, AnUnknownSuffixListsTheLegalOnes) {
    for (const char* name : {"a.gif", "a", "a.SVG", ".svg", "svg"})
        expect_error(ExitCode::BadInput, {name, ".svg .png .pdf .html .txt .json .gp"},
                     [&] { plot(both(), file(name)); });
}

TEST_F(Plot, NothingToDrawIsBadInput) {
    const Trace empty;
    Trace wrong = predicted_;
    wrong.events[0].device = 7;
    Trace wide = predicted_;
    wide.devices = 100'000;
    expect_error(ExitCode::BadInput, {"no trace"}, [&] { plot({}, file("a.svg")); });
    expect_error(ExitCode::BadInput, {"'p'", "no trace"}, [&] { plot({{nullptr, "p"}}, file("a.txt")); });
    expect_error(ExitCode::BadInput, {"no events"}, [&] { plot({{&empty, "p"}}, file("a.html")); });
    expect_error(ExitCode::BadInput, {"device 7"}, [&] { plot({{&wrong, "p"}}, file("a.svg")); });
    expect_error(ExitCode::BadInput, {"100000", "Perfetto"}, [&] { plot({{&wide, "p"}}, file("a.svg")); });
}

TEST_F(Plot, SaysWhichFileItCannotWrite) {
    for (const char* name : {"no/a.svg", "no/a.html", "no/a.txt", "no/a.json"})
        expect_error(ExitCode::RunFailed, {name}, [&] { plot({{&predicted_, "p"}}, file(name)); });
}

TEST_F(Plot, DrawsTracesOfNoLengthAndWithoutMemory) {
    Trace instant = predicted_;
    instant.memory.clear();
    for (TraceEvent& event : instant.events)
        event.start = event.end = 5;
    std::vector<std::string> names = {"a.html", "a.txt"};
    if (has_gnuplot())
        names.push_back("a.svg");
    for (const std::string& name : names) {
        plot({{&instant, "instant"}}, file(name));
        EXPECT_GT(fs::file_size(file(name)), 0u) << name;
    }
}

// Curves

TEST_F(Plot, CurvesInEveryFormat) {
    const std::vector<Curve> curves = {{"1f1b", {2.5, 1.25, NAN, 0.5}}, {"reference", {2.5, 1.25, 0.75}}};
    std::vector<std::string> names = {"loss.html", "loss.txt", "loss.json"};
    if (has_gnuplot())
        names.insert(names.end(), {"loss.svg", "loss.png", "loss.pdf"});
    for (const std::string& name : names) {
        plot_curves(curves, "step", "loss", file(name));
        EXPECT_GT(fs::file_size(file(name)), 100u) << name;
    }
    expect_parts(contents(file("loss.html")), {"1f1b", "reference", "<polyline", "step", "loss"});
    expect_parts(contents(file("loss.txt")), {"1f1b", "1.25", "nan"});
    EXPECT_EQ(nlohmann::json::parse(contents(file("loss.json")))["curves"][1]["values"][2], 0.75);
    if (has_gnuplot())
        expect_parts(contents(file("loss.svg")), {">1f1b<", ">reference<", ">step<", ">loss<"});
}

TEST_F(Plot, CurvesWithoutValuesAreBadInput) {
    expect_error(ExitCode::BadInput, {"no values"}, [&] { plot_curves({{"a", {}}}, "x", "y", file("a.svg")); });
    expect_error(ExitCode::BadInput, {"finite"}, [&] { plot_curves({{"a", {NAN}}}, "x", "y", file("a.svg")); });
    expect_error(ExitCode::BadInput, {".svg .png"}, [&] { plot_curves({{"a", {1}}}, "x", "y", file("a.bmp")); });
}

// Charts over numbers

Chart pareto() {
    const double gib = 1 << 30;
    Chart chart{{{"candidates", {9e6, 7e6, 5e6, 4e6, 8e6}, {gib, 2 * gib, 3 * gib, 5 * gib, 6 * gib}, Style::Dots},
                 {"front", {9e6, 5e6, 4e6}, {gib, 3 * gib, 5 * gib}, Style::Steps, {"gpipe", "1f1b <m 8>", "zb-v"}}},
                {"peak memory", Quantity::Size},
                {"step time", Quantity::Time},
                "plans of 32 samples"};
    return chart;
}

TEST_F(Plot, NumbersAreShownInUnitsThatSuitThem) {
    plot_chart(pareto(), file("pareto.html"));
    expect_parts(contents(file("pareto.html")),
                 {">peak memory in GiB<", ">step time in ms<", ">plans of 32 samples<", ">candidates<", ">front<",
                  ">gpipe<", ">1f1b &lt;m 8&gt;<", ">zb-v<", "peak memory in GiB: 5\nstep time in ms: 4"});
    plot_chart(pareto(), file("pareto.txt"));
    expect_parts(contents(file("pareto.txt")),
                 {"peak memory in GiB  step time in ms\n", "                 3                5  1f1b <m 8>\n"});
    plot_chart(pareto(), file("pareto.json"));
    const auto json = nlohmann::json::parse(contents(file("pareto.json")));
    EXPECT_EQ(json["x_unit"], "B");
    EXPECT_EQ(json["y_unit"], "ns");
    EXPECT_EQ(json["curves"][1]["x"][2], 5.0 * (1 << 30));
    EXPECT_EQ(json["curves"][1]["labels"][2], "zb-v");
    if (!has_gnuplot())
        return;
    plot_chart(pareto(), file("pareto.svg"));
    expect_parts(contents(file("pareto.svg")), {">peak memory in GiB<", ">step time in ms<", ">gpipe<", ">front<"});
}

// The height of a step is that of the point before it: no plan is drawn better than it is.
TEST_F(Plot, StepsHoldAValueUntilTheNextPoint) {
    const Chart chart{{{"front", {2, 1}, {0, 10}, Style::Steps}}, {"x"}, {"y"}};
    plot_chart(chart, file("steps.html"));
    const std::string page = contents(file("steps.html"));
    const std::size_t begin = page.find("points=\"") + 8;
    std::istringstream points(page.substr(begin, page.find('"', begin) - begin));
    std::vector<std::string> corners;
    for (std::string corner; points >> corner;)
        corners.push_back(corner);
    ASSERT_EQ(corners.size(), 3u);
    const auto x = [&](std::size_t i) { return corners[i].substr(0, corners[i].find(',')); };
    const auto y = [&](std::size_t i) { return corners[i].substr(corners[i].find(',')); };
    EXPECT_EQ(y(0), y(1));
    EXPECT_EQ(x(1), x(2));
}

TEST_F(Plot, LabelsNeverOverlap) {
    Curve crowd{"crowd", {}, {}, Style::Points};
    for (int i = 0; i < 200; ++i) {
        crowd.x.push_back(i * 37 % 200);
        crowd.values.push_back(i * 71 % 200);
        crowd.labels.push_back("plan number " + std::to_string(i));
    }
    plot_chart({{crowd}, {"x"}, {"y"}}, file("crowd.html"));
    const std::string page = contents(file("crowd.html"));
    std::vector<std::pair<double, double>> ends;  // of texts that go right of it, and left
    for (std::size_t at = 0; (at = page.find("class=\"label\"", at)) != std::string::npos; ++at) {
        const std::size_t begin = page.rfind("<text x=\"", at) + 9;
        const bool leftward = page.compare(at + 14, 7, " text-a") == 0;
        const double y = std::atof(page.c_str() + page.find("y=\"", begin) + 3);
        ends.emplace_back(std::atof(page.c_str() + begin) - (leftward ? 80 : 0), y);
    }
    EXPECT_GT(ends.size(), 10u);
    EXPECT_LT(ends.size(), 200u);
    for (std::size_t i = 0; i < ends.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            EXPECT_FALSE(std::abs(ends[i].first - ends[j].first) < 75 && std::abs(ends[i].second - ends[j].second) < 11)
                << i << ' ' << j;
}

TEST_F(Plot, ALogarithmicAxisPutsPowersAtEqualDistances) {
    const std::vector<double> bandwidths = {1e9, 1e10, 1e11};
    const Chart chart{{{"line", {3, 2, 1}, bandwidths, Style::LineWithPoints}, {"", {1, 1}, {0, -1}, Style::Crosses}},
                      {"bandwidth", Quantity::Bandwidth, true, bandwidths},
                      {"time"}};
    plot_chart(chart, file("log.html"));
    const std::string page = contents(file("log.html"));
    expect_parts(page, {">bandwidth in GB/s<", ">1<", ">10<", ">100<"});
    std::vector<double> marks;
    for (std::size_t at = 0; (at = page.find("<circle cx=\"", at)) != std::string::npos; ++at)
        marks.push_back(std::atof(page.c_str() + at + 12));
    ASSERT_EQ(marks.size(), 3u);
    EXPECT_NEAR(marks[1] - marks[0], marks[2] - marks[1], 0.02);
    if (has_gnuplot()) {
        plot_chart(chart, file("log.svg"));
        plot_chart(chart, file("log.gp"));
        expect_parts(contents(file("log.gp")), {"set logscale x", "set xtics ('1' 1, '10' 10, '100' 100)"});
    }
}

TEST_F(Plot, ChartsOfOnePointOrNoneThatStands) {
    const Curve one{"one", {5}, {3}, Style::LineWithPoints}, none{"none", {NAN}, {1}, Style::Points};
    std::vector<std::string> names = {"a.html", "a.txt", "a.json"};
    if (has_gnuplot())
        names.push_back("a.svg");
    for (const std::string& name : names)
        for (const bool logarithmic : {false, true})
            plot_chart({{one, none}, {"x", Quantity::Number, logarithmic}, {"y"}}, file(name));
    expect_error(ExitCode::BadInput, {"finite"}, [&] { plot_chart({{none}, {"x"}, {"y"}}, file("b.svg")); });
    plot_chart({{none}, {"x", Quantity::Time, true}, {"y", Quantity::Size, true}}, file("b.html"));
}

}  // namespace
}  // namespace pw
