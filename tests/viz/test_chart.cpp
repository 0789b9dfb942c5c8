// Charts: curves over steps, and values over numbers.
#include "tests/support/plot_rig.h"
#include "viz/chart.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <regex>
#include <set>
#include <tuple>

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
    expect_parts(contents(file("loss.html")), {"1f1b", "reference", "<canvas", "step", "loss", "<td>0.75</td>"});
    expect_parts(contents(file("loss.txt")), {"1f1b", "1.25", "0.5"});
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
                 {"<th>peak memory in GiB</th>", "<th>step time in ms</th>", ">plans of 32 samples<", "\"candidates\"",
                  "\"front\"", "\"gpipe\"", "1f1b \\u003cm 8>", "<td>1f1b &lt;m 8&gt;</td><td>3</td><td>5</td>"});
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

// The data of a page.
nlohmann::json data_in(const std::string& page) {
    const std::size_t begin = page.find("const data = ") + 13, end = page.find(";\n\"use strict\"", begin);
    return nlohmann::json::parse(page.substr(begin, end - begin));
}

TEST_F(Plot, ThePageOfAChartIsSelfContained) {
    Chart chart = pareto();
    chart.title = "</script><script>alert(1)</script>";
    chart.curves[1].names = {"a", "b", "c"};
    chart.facts = {"memory", "time"};
    chart.curves[0].facts = std::vector<std::vector<std::string>>(5, {"1 GiB", "9 ms"});
    chart.curves[1].facts = {{"1 GiB", "9 ms"}, {"3 GiB", "5 ms"}, {"5 GiB", "4 ms"}};
    chart.x.levels = {{4.0 * (1 << 30), "memory 4 GiB"}};
    plot_chart(chart, file("chart.html"));
    const std::string page = contents(file("chart.html"));
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    for (const char* outside : {" src=", "<link", "@import", "fetch(\""})
        EXPECT_EQ(page.find(outside), std::string::npos) << outside;
    expect_parts(page,
                 {"Chart.js v3", "MIT License", "prefers-color-scheme: dark", "<td>b</td><td>3 GiB</td><td>5 ms</td>"});
    const auto data = data_in(page);
    EXPECT_EQ(data["x"]["levels"][0]["at"], 4);
    EXPECT_EQ(data["curves"][1]["names"][2], "c");
    EXPECT_EQ(data["curves"][1]["y"], (nlohmann::json{9, 5, 4}));
    EXPECT_EQ(data["curves"][1]["facts"][1][1], "5 ms");
}

// Labels are placed at the same positions in every format.
// Smaller text leaves a chart of the same width more room.
TEST_F(Plot, TheTextOfAChartHasTheSizeOfTheView) {
    View view;
    view.width = 240;
    view.font = 7;
    EXPECT_NEAR(layout_of(pareto(), view).width, 240 * 11 / 7.0, 0.5);
    View plain;
    plain.titles = false;
    EXPECT_LT(layout_of(pareto(), plain).top, layout_of(pareto()).top);
    plain.legend = false;
    expect_error(ExitCode::BadInput, {"without devices and the parts of a timeline"},
                 [&] { plot_chart(pareto(), file("chart.svg"), plain); });
    expect_error(ExitCode::BadInput, {"text of one size", ".pdf or .tex"},
                 [&] { plot_chart(pareto(), file("chart.html"), view); });
    NEED_GNUPLOT();
    plot_chart(pareto(), file("chart.svg"), view);
    const std::string svg = contents(file("chart.svg"));
    EXPECT_NE(svg.find("width=\"240\""), std::string::npos) << svg.substr(0, 300);
    const std::regex size("font-size=\"([0-9.]+)\"");
    for (std::sregex_iterator at(svg.begin(), svg.end(), size), end; at != end; ++at)
        EXPECT_LE(std::stod((*at)[1]), 13 * 7 / 11.0 + 0.01);
}

TEST_F(Plot, LabelsNeverOverlap) {
    Curve crowd{"crowd", {}, {}, Style::Points};
    for (int i = 0; i < 200; ++i) {
        crowd.x.push_back(i * 37 % 200);
        crowd.values.push_back(i * 71 % 200);
        crowd.labels.push_back("plan number " + std::to_string(i));
    }
    const ChartLayout layout = layout_of({{crowd}, {"x"}, {"y"}});
    EXPECT_GT(layout.labels.size(), 10u);
    EXPECT_LT(layout.labels.size(), 200u);
    const auto left_of = [](const Label& label) { return label.x - (label.side < 0 ? width_of(label.text) : 0); };
    for (const Label& a : layout.labels)
        for (const Label& b : layout.labels)
            EXPECT_TRUE(&a == &b || std::abs(left_of(a) - left_of(b)) >= width_of(a.text) - 8 ||
                        std::abs(a.y - b.y) >= 11)
                << a.text << ", " << b.text;
}

TEST_F(Plot, ALogarithmicAxisPutsPowersAtEqualDistances) {
    const std::vector<double> bandwidths = {1e9, 1e10, 1e11};
    const Chart chart{{{"line", {3, 2, 1}, bandwidths, Style::LineWithPoints}, {"", {1, 1}, {0, -1}, Style::Crosses}},
                      {"bandwidth", Quantity::Bandwidth, true, bandwidths},
                      {"time"}};
    const ChartLayout layout = layout_of(chart);
    EXPECT_EQ(layout.x.label, "bandwidth in GB/s");
    ASSERT_EQ(layout.x.ticks.size(), 3u);
    const auto pixel = [&](std::size_t i) { return layout.x.pixel(layout.x.ticks[i].value); };
    EXPECT_NEAR(pixel(1) - pixel(0), pixel(2) - pixel(1), 0.02);
    plot_chart(chart, file("log.html"));
    EXPECT_EQ(data_in(contents(file("log.html")))["x"]["ticks"], (nlohmann::json{1, 10, 100}));
    if (has_gnuplot()) {
        plot_chart(chart, file("log.svg"));
        plot_chart(chart, file("log.gp"));
        expect_parts(contents(file("log.gp")), {"set logscale x", "set xtics  ('1' 1, '10' 10, '100' 100)"});
    }
}

// No two of a dozen lines look alike, and each is named at its end, apart from the others.
TEST_F(Plot, LinesAreToldApart) {
    Chart chart{{}, {"x"}, {"y"}};
    for (int i = 0; i < 12; ++i)
        chart.curves.push_back({"line " + std::to_string(i), {1, 2, 3 + 0.001 * i}, {1, 2, 3}, Style::LineWithPoints});
    std::set<std::tuple<int, int, int>> looks;
    for (std::size_t i = 0; i < chart.curves.size(); ++i)
        looks.emplace(look_of(chart, i).colour, look_of(chart, i).marker, look_of(chart, i).dash);
    EXPECT_EQ(looks.size(), 12u);
    const ChartLayout layout = layout_of(chart);
    ASSERT_EQ(layout.ends.size(), 12u);
    EXPECT_TRUE(layout.legend.empty());
    for (std::size_t i = 1; i < layout.ends.size(); ++i) {
        EXPECT_GE(layout.ends[i].y - layout.ends[i - 1].y, 12.9);
        EXPECT_LE(layout.ends[i].y, layout.bottom + 0.1);
    }
    EXPECT_EQ(layout.ends.front().curve, 11u);  // the highest
}

TEST_F(Plot, PointsBeyondAnAxisAreLeftOut) {
    Chart chart{{{"plans", {1, 2, 100}, {1, 2, 3}, Style::Points}}, {"x"}, {"y"}};
    chart.y.most = 10;
    const ChartLayout layout = layout_of(chart);
    EXPECT_LT(layout.y.high, 10);
    EXPECT_FALSE(point_of(layout, chart, chart.curves[0], 2));
}

TEST_F(Plot, CellsAreAMatrixInText) {
    Chart chart{{{"rate", {0, 0, 1}, {0, 1, 0}, Style::Cells}}, {"m"}, {"links"}};
    chart.curves[0].shades = {10, 20, 30};
    chart.x.names = {"4", "8"};
    chart.y.names = {"slow", "fast"};
    chart.shade = {"samples/s"};
    plot_chart(chart, file("map.txt"));
    EXPECT_EQ(contents(file("map.txt")),
              "samples/s; m to the right, links downwards\n       4   8\nslow  10  20\nfast  30   -\n");
    plot_chart(chart, file("map.html"));
    EXPECT_EQ(data_in(contents(file("map.html")))["curves"][0]["shades"], (nlohmann::json{10, 20, 30}));
    if (has_gnuplot()) {
        plot_chart(chart, file("map.svg"));
        expect_parts(contents(file("map.svg")), {">slow<", ">8<", ">30<", ">samples/s<"});
    }
}

// Points over the memory have a star.
TEST_F(Plot, LinesAreATableInText) {
    const Chart chart{{{"a", {1, 2}, {4, 8}, Style::LineWithPoints},
                       {"b", {3, NAN}, {4, 8}, Style::LineWithPoints},
                       {"too large", {2}, {8}, Style::Crosses}},
                      {"m"},
                      {"rate"}};
    plot_chart(chart, file("lines.txt"));
    EXPECT_EQ(contents(file("lines.txt")), "rate\nm   a  b\n4   1  3\n8  2*  -\n* too large\n");
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
    Chart bars{{{"load", {2, 4}, {0, 1}, Style::Bars}}, {"stage"}, {"load"}};
    bars.x.names = {"0", "1"};
    const ChartLayout layout = layout_of(bars);
    const auto height = [&](std::size_t i) {
        return layout.bottom - layout.y.pixel(point_of(layout, bars, bars.curves[0], i)->y);
    };
    EXPECT_NEAR(height(1), 2 * height(0), 0.02);
    EXPECT_EQ(layout.y.low, 0);
}

}  // namespace
}  // namespace pw
