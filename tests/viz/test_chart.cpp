// Charts: curves over steps, and values over numbers.
#include "tests/support/plot_rig.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>

namespace pw {
namespace {

using Style = Curve::Style;

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

// The data come in the script, where titles must stay data.
TEST_F(Plot, TitlesOfCurvesAreTextNotCommands) {
    NEED_GNUPLOT();
    const std::string title = "`touch " + file("x") + "` $data @x \\";
    plot_curves({{title, {1, 2}}, {"end_of_data", {2, 1}}}, "x", "y", file("curves.svg"));
    expect_parts(contents(file("curves.svg")), {"`touch ", "$data @x \\", ">end_of_data<"});
    EXPECT_FALSE(fs::exists(file("x")));
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

TEST_F(Plot, ChartsOfOnePointOrNone) {
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

// Bars begin at zero, are as high as their values, and are centred on their numbers.
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

}  // namespace
}  // namespace pw
