// Timelines in every format, and data that cannot be drawn.
#include "schedules/trace/trace_json.h"
#include "tests/support/plot_rig.h"
#include "viz/formats.h"

#include <cstdlib>
#include <iterator>
#include <map>
#include <regex>

namespace pw {
namespace {

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
    const auto without_names = [](std::string text) {  // those of gnuplot are useless to readers
        for (const char* const name : {"<title>[^<]*</title>", " pointer-events=\"none\"",
                                       " shape-rendering='crispEdges'", "(?:/|></polygon)(?=>)"})
            text = std::regex_replace(text, std::regex(name), "");
        return text;
    };
    EXPECT_EQ(without_names(contents(elsewhere / "picture.svg")), without_names(contents(file("picture.svg"))));
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

// The names that browsers show under the mouse and screen readers read out.
TEST_F(Plot, SvgIsNamedForPeople) {
    NEED_GNUPLOT();
    plot({{&predicted_, "a < b"}, {&measured_, "c"}}, file("named.svg"));
    const std::string text = contents(file("named.svg"));
    expect_parts(text,
                 {"<title>a &lt; b; c</title>", "<title>forward</title>", "<title>backward</title>",
                  "<title>memory of device 1, c</title>", "<title>device 0: F0 of stage 0, 0 to 1.00012 ms</title>",
                  "<title>device 1 receives activations 0 from stage 0, 1.00012 to 1.15014 ms, 1.000 MiB</title>"});
    const std::regex title("<title>([^<]*)</title>");
    for (std::sregex_iterator at(text.begin(), text.end(), title), end; at != end; ++at)
        EXPECT_EQ((*at)[1].str().find_first_of("$_"), std::string::npos) << (*at)[1];
    EXPECT_EQ(text.find("<title>Gnuplot"), std::string::npos);
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

// A fake gnuplot that fails: its message is passed on, and no file is left.
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

TEST_F(Plot, APictureThatGnuplotCutsOffIsAFailure) {
    NEED_GNUPLOT();
    const std::string script = gnuplot_output(file("cut.svg"), {400, 300});
    draw_by_gnuplot(file("cut.svg"), script + "plot x\n", "", {});
    const std::string before = contents(file("cut.svg"));
    expect_error(ExitCode::RunFailed, {"cannot write", "cut.svg"},
                 [&] { draw_by_gnuplot(file("cut.svg"), script + "set output '/dev/null'\nplot x\n", "", {}); });
    EXPECT_EQ(contents(file("cut.svg")), before);
}

// LaTeX typesets the text, so its special characters are escaped. pdflatex, where it is installed, reads the figure.
TEST_F(Plot, LatexGetsTheTextAndAPdfOfTheRest) {
    NEED_GNUPLOT();
    View view;
    view.width = 240;
    view.font = 7;
    plot({{&predicted_, "50 % of x_1 & {y} #2 $z ~ ^ \\"}}, file("a b.tex"), view);
    const std::string text = contents(file("a b.tex"));
    expect_parts(text, {"\\fontsize{7}{8.4}\\selectfont", "50 \\% of x\\_1 \\& \\{y\\} \\#2 \\$z", "\\textasciitilde{}",
                        "\\textasciicircum{}", "\\textbackslash{}", "device 0", "{" + file("a b-boxes") + "}"});
    EXPECT_TRUE(contents(file("a b-boxes.pdf")).starts_with("%PDF"));
    EXPECT_EQ(text.find("/picture"), std::string::npos);
    plot_curves({{"50 %", {1, 2}}, {"a_b", {2, 1}}}, "x", "y", file("c.tex"), view);
    expect_parts(contents(file("c.tex")), {"50 \\%", "a\\_b"});
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 4);
    if (std::system("pdflatex -version >/dev/null 2>&1") != 0)
        GTEST_SKIP() << "pdflatex is not installed (texlive-latex-recommended): no figure was typeset";
    std::ofstream(file("paper.tex")) << "\\documentclass{article}\\usepackage{graphicx,xcolor}\\begin{document}\n"
                                     << "\\input{c.tex}\\end{document}\n";
    const std::string typeset = "cd '" + folder_.path().string() + "' && pdflatex -halt-on-error paper.tex >log 2>&1";
    EXPECT_EQ(std::system(typeset.c_str()), 0) << contents(file("log"));
}

// Text, traces

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

// The times are those since the start of the trace, and tasks are cut at the edges.
namespace {

struct Written {
    double x, end;
    std::string text;
};

// The texts of an SVG from the left edge on, and about where they end.
std::vector<Written> texts_of(const std::string& svg) {
    std::vector<Written> texts;
    const std::regex form(
        "translate\\(([\\d.]+),[\\d.]+\\)\"[^>]*font-size=\"([\\d.]+)\"[^>]*text-anchor=\"start\">\\s*<text>([^<]*)<");
    for (std::sregex_iterator at(svg.begin(), svg.end(), form), end; at != end; ++at) {
        const double x = std::stod((*at)[1]), size = std::stod((*at)[2]);
        texts.push_back({x, x + 0.5 * size * static_cast<double>((*at)[3].length()), (*at)[3]});
    }
    return texts;
}

}  // namespace

TEST_F(Plot, NarrowPicturesHaveTheWholeLegendAndTitle) {
    NEED_GNUPLOT();
    for (const int width : {200, 300, 500, 1200}) {
        plot(both(), file("x.svg"), {.title = "Two traces of the same plan with a long title", .width = width});
        const std::string svg = contents(file("x.svg"));
        const std::vector<Written> texts = texts_of(svg);
        std::string said;
        for (const Written& written : texts) {
            EXPECT_LE(written.end, width) << written.text;
            said += written.text + ' ';
        }
        expect_parts(said, {"forward", "backward", "update", "activations", "gradients", "sends above", "device 0 ",
                            "predicted ", "measured ", "title ", "25.7 ms"});
    }
}

TEST_F(Plot, PartsCanBeLeftOut) {
    NEED_GNUPLOT();
    plot(both(), file("x.svg"), {.legend = false, .titles = false});
    std::string svg = contents(file("x.svg"));
    EXPECT_EQ(svg.find("<text>forward<"), std::string::npos);
    EXPECT_EQ(svg.find("<text>measured, 1f1b: step 27.0 ms<"), std::string::npos);
    EXPECT_NE(svg.find(">Memory<"), std::string::npos);
    plot(both(), file("x.svg"), {.memory = false, .transfers = false, .names = {"GPU a", "GPU b"}});
    svg = contents(file("x.svg"));
    for (const char* gone : {"<text>Memory<", "<text>activations<", "<text>device 0 · stage 0<"})
        EXPECT_EQ(svg.find(gone), std::string::npos) << gone;
    expect_parts(svg, {"<text>GPU a<", "<text>GPU b<", "<text>forward<"});
}

TEST_F(Plot, PartsThatCannotBeLeftOutAreBadInput) {
    expect_error(ExitCode::BadInput, {"has all parts", "draw to .svg"},
                 [&] { plot(both(), file("x.html"), {.memory = false}); });
    expect_error(ExitCode::BadInput, {"3 names for 2 devices"}, [&] {
        plot(both(), file("x.svg"), {.names = {"a", "b", "c"}});
    });
}

TEST_F(Plot, LargerTextMakesAHigherPicture) {
    NEED_GNUPLOT();
    const auto height = [&](double font) {
        plot(both(), file("x.svg"), {.width = 800, .font = font});
        const std::string text = contents(file("x.svg"));
        return std::atoi(text.c_str() + text.find("height=\"") + 8);
    };
    EXPECT_NEAR(height(22), 2 * height(11), 60);
}

// Updates that take no time are not drawn.
TEST_F(Plot, TheLegendHasWhatIsSeen) {
    NEED_GNUPLOT();
    Trace trace = predicted_;
    for (TraceEvent& event : trace.events)
        if (event.task.op == Op::Update)
            event.end = event.start;
    plot({{&trace, "one"}}, file("x.svg"));
    EXPECT_EQ(contents(file("x.svg")).find("<text>update<"), std::string::npos);
    expect_parts(contents(file("x.svg")), {">forward<"});
}

// A plan that takes more than twice as long as most does not make the other plans narrow.
TEST_F(Plot, LongPlansAreCut) {
    NEED_GNUPLOT();
    Trace slow = predicted_;
    for (TraceEvent& event : slow.events) {
        event.start *= 10;
        event.end *= 10;
    }
    plot({{&predicted_, "a"}, {&measured_, "b"}, {&predicted_, "c"}, {&slow, "slow"}}, file("x.svg"));
    const std::string svg = contents(file("x.svg"));
    expect_parts(svg, {"slow (drawn to ", ">a<", ">b<", ">c<"});
    plot({{&predicted_, "a"}, {&slow, "slow"}}, file("x.svg"));
    EXPECT_EQ(contents(file("x.svg")).find("(drawn to"), std::string::npos);
}

TEST_F(Plot, ARangeOfTimeIsDrawnAlone) {
    const Trace tiny =
        sample_trace({.devices = 2, .microbatches = 2, .forward = 1'000'000, .backward = 2'000'000, .transfer = 0});
    const View view{.title = "the middle", .from = 1'000'000, .to = 3'000'000};
    std::string text = text_of({{&tiny, "tiny"}}, view);
    EXPECT_TRUE(text.starts_with("the middle\n\ntiny\n")) << text;
    EXPECT_EQ(text.find("F0"), text.find("|", text.find("device 1")) + 1) << text;
    EXPECT_NE(text.find("B0"), std::string::npos) << text;
    for (const char* outside : {"B1", "U1"})
        EXPECT_EQ(text.find(outside), std::string::npos) << text;
    EXPECT_NE(text.find("1 ms"), std::string::npos) << text;
    expect_error(ExitCode::BadInput, {"begins at 20.00 ms", "ends at 9"}, [&] {
        plot({{&tiny, "tiny"}}, file("a.txt"), {.from = 20'000'000});
    });
    expect_error(ExitCode::BadInput, {"the trace itself"}, [&] {
        plot({{&tiny, "tiny"}}, file("a.json"), {.from = 1'000'000});
    });
    if (!has_gnuplot())
        return;
    plot({{&tiny, "tiny"}}, file("a.svg"), {.title = "the middle", .width = 777, .from = 1'000'000, .to = 3'000'000});
    const std::string svg = contents(file("a.svg"));
    expect_parts(svg, {"<title>the middle; tiny</title>", ">the middle<", "width=\"777\"",
                       "<title>device 1: B0 of stage 1, 2 to 4 ms</title>"});
    EXPECT_EQ(svg.find("B1 of stage"), std::string::npos);
}

TEST_F(Plot, APictureThatIsLargeForBrowsersIsTold) {
    std::ofstream(file("small.svg")) << "<svg></svg>";
    for (const char* name : {"large.svg", "large.png"})
        std::ofstream(file(name)) << std::string(31'000'000, ' ');
    EXPECT_EQ(note_on_size(file("small.svg")), "");
    EXPECT_EQ(note_on_size(file("large.png")), "");
    EXPECT_EQ(note_on_size(file("missing.svg")), "");
    expect_parts(note_on_size(file("large.svg")), {"large.svg has 31 MB", ".html"});
}

TEST_F(Plot, JsonIsTheTraceItself) {
    plot({{&predicted_, "one"}}, file("one.json"));
    EXPECT_TRUE(read_trace(file("one.json")) == predicted_);
    expect_error(ExitCode::BadInput, {"2 traces", "one trace"}, [&] { plot(both(), file("two.json")); });
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
        EXPECT_GT(fs::file_size(timeline), 0u) << timeline;
        EXPECT_GT(fs::file_size(chart), 0u) << chart;
    }
}

// Data that cannot be drawn

TEST_F(Plot, AnUnknownSuffixListsTheLegalOnes) {
    for (const char* name : {"a.gif", "a", "a.SVG", ".svg", "svg"})
        for (const Format& format : kFormats)
            expect_error(ExitCode::BadInput, {name, std::string(format.suffix)}, [&] { plot(both(), file(name)); });
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

}  // namespace
}  // namespace pw
