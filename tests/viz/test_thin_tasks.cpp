// Tasks that are thinner than a pixel: SVG as browsers draw it neither drops nor widens them, so that the part of a row
// that has an operation's colour is the part of the time that it takes.
#include "tests/support/plot_rig.h"
#include "viz/picture.h"
#include "viz/timeline_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <sstream>
#include <tuple>

namespace pw {
namespace {

constexpr Ns kPeriod = 1000;

// One device that is busy for the first `busy` ns of every period.
Trace busy_for(Ns busy, int periods) {
    Trace trace;
    trace.label = "predicted";
    trace.devices = trace.stages = 1;
    trace.micro_batches = periods;
    trace.stages_of = {{0}};
    for (int k = 0; k < periods; ++k)
        trace.events.push_back({0, 0, 0, Task{Op::Forward, 0, k}, k * kPeriod, k * kPeriod + busy, 0, 0});
    trace.events.push_back(
        {0, 0, 0, Task{Op::Update, 0, periods - 1}, periods * kPeriod, (periods + 100) * kPeriod, 0, 0});
    return trace;
}

struct Polygon {
    int red = 0, green = 0, blue = 0;
    double left = std::numeric_limits<double>::max(), right = 0, top = left, bottom = 0;
    double area = 0;
};

std::vector<Polygon> polygons_of(const std::string& svg) {
    std::vector<Polygon> polygons;
    const std::regex form("<polygon fill = 'rgb\\( *(\\d+), *(\\d+), *(\\d+)\\)' points = '");
    for (std::sregex_iterator at(svg.begin(), svg.end(), form), end; at != end; ++at) {
        Polygon polygon{std::stoi((*at)[1]), std::stoi((*at)[2]), std::stoi((*at)[3])};
        const auto begin = static_cast<std::size_t>(at->position() + at->length());
        std::istringstream points(svg.substr(begin, svg.find('\'', begin) - begin));
        char comma = 0;
        double before_x = 0, before_y = 0, first_x = 0, first_y = 0;
        bool first = true;
        for (double x = 0, y = 0; points >> x >> comma >> y; first = false) {
            polygon.left = std::min(polygon.left, x);
            polygon.right = std::max(polygon.right, x);
            polygon.top = std::min(polygon.top, y);
            polygon.bottom = std::max(polygon.bottom, y);
            if (first)
                std::tie(first_x, first_y) = std::tie(x, y);
            else
                polygon.area += (before_x * y - x * before_y) / 2;
            std::tie(before_x, before_y) = std::tie(x, y);
        }
        polygon.area = std::abs(polygon.area + (before_x * first_y - first_x * before_y) / 2);
        polygons.push_back(polygon);
    }
    return polygons;
}

// How much of the forward's colour on white a polygon has.
double part_of_forward(const Polygon& polygon) {
    const auto red = static_cast<int>(colour_of(Op::Forward, 0, 1) >> 16);
    return static_cast<double>(255 - polygon.red) / (255 - red);
}

// The update fills the row.
double row_height(const std::vector<Polygon>& row) {
    double height = 0;
    for (const Polygon& polygon : row)
        height = std::max(height, polygon.bottom - polygon.top);
    return height;
}

bool is_update(const Polygon& polygon) {
    return (polygon.red << 16 | polygon.green << 8 | polygon.blue) == static_cast<int>(colour_of(Op::Update, 0, 1));
}

TEST_F(Plot, NothingInAnSvgIsThinnerThanAPixel) {
    NEED_GNUPLOT();
    for (const int microbatches : {8, 32, 100, 512}) {
        const Trace trace = sample_trace({.devices = 16, .microbatches = microbatches});
        plot({{&trace, "1f1b"}}, file("x.svg"));
        const std::vector<Polygon> polygons = polygons_of(contents(file("x.svg")));
        EXPECT_GT(polygons.size(), 100u);
        for (const Polygon& polygon : polygons)
            EXPECT_GT(polygon.right - polygon.left, 0.98) << microbatches << ": from " << polygon.left;
    }
}

TEST_F(Plot, ThePartOfARowWithAColourIsThePartOfTheTime) {
    NEED_GNUPLOT();
    for (const int periods : {300, 1000, 2048, 5000})
        for (const Ns busy : {100, 170, 500, 900}) {
            const Trace trace = busy_for(busy, periods);
            plot({{&trace, "forwards"}}, file("x.svg"));
            std::vector<Polygon> row = polygons_of(contents(file("x.svg")));
            std::erase_if(row, [](const Polygon& polygon) { return polygon.top < 34; });
            const auto band = std::ranges::find_if(row, [](const Polygon& polygon) {
                return part_of_forward(polygon) == 1 && polygon.right - polygon.left > 100;
            });
            if (band != row.end()) {
                const double height = row_height(row);
                EXPECT_NEAR(band->area / (band->right - band->left) / height, static_cast<double>(busy) / kPeriod, 0.02)
                    << periods << ' ' << busy;
                continue;
            }
            std::ranges::stable_sort(row, {}, &Polygon::left);
            const double begin = row.front().left, end = std::ranges::find_if(row, is_update)->left;
            double area = 0;
            for (std::size_t i = 0; i < row.size() && !is_update(row[i]); ++i)  // the next one is on top
                area += (std::min(row[i].right, row[i + 1].left) - row[i].left) * part_of_forward(row[i]);
            EXPECT_NEAR(area / (end - begin), static_cast<double>(busy) / kPeriod, 0.02) << periods << ' ' << busy;
        }
}

// Between two that last long.
TEST_F(Plot, AShortTaskIsSeen) {
    NEED_GNUPLOT();
    Trace trace = busy_for(10, 1);
    trace.events.back().start = 10'000;
    trace.events.back().end = 10'000'000;
    plot({{&trace, "one"}}, file("x.svg"));
    const std::vector<Polygon> polygons = polygons_of(contents(file("x.svg")));
    EXPECT_TRUE(std::ranges::any_of(polygons, [](const Polygon& polygon) {
        return polygon.right - polygon.left < 2 && part_of_forward(polygon) >= 0.09;
    }));
}

}  // namespace
}  // namespace pw
