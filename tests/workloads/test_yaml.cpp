#include "workloads/text/yaml.h"

#include "tests/support/refusal.h"
#include "workloads/models/precision.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace pw {
namespace {

Yaml read(const std::string& text, const std::vector<std::string>& set = {}) {
    return Yaml::parse(std::make_shared<Source>("cfg.yaml", text), set);
}

// All mistakes of a text after `use` has read it.
template <class Use>
std::string mistakes(const std::string& text, const std::vector<std::string>& set, Use use) {
    try {
        const Yaml root = read(text, set);
        use(root);
        root.source().throw_if_mistaken();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        return error.what();
    }
    return "";
}

std::string mistakes(const std::string& text, const std::vector<std::string>& set = {}) {
    return mistakes(text, set, [](const Yaml&) {});
}

TEST(Yaml, ReadsEveryType) {
    const Yaml root =
        read("a: {t: 1.5 ms, b: 16 GiB, w: 10 GB/s, f: 1 TFLOP/s, i: -3, n: 1e-3, y: true, s: word, l: [x, y]}");
    EXPECT_EQ(root["a"]["t"].time(0), 1'500'000);
    EXPECT_EQ(root["a"]["b"].bytes(0), Bytes{16} << 30);
    EXPECT_EQ(root["a"]["w"].bandwidth(0), 10e9);
    EXPECT_EQ(root["a"]["f"].flops(0), 1e12);
    EXPECT_EQ(root["a"]["i"].integer(0, -10, 10), -3);
    EXPECT_EQ(root["a"]["n"].number(0, 0, 1), 1e-3);
    EXPECT_TRUE(root["a"]["y"].boolean(false));
    EXPECT_EQ(root["a"]["s"].text(), "word");
    ASSERT_EQ(root["a"]["l"].items().size(), 2u);
    EXPECT_EQ(root["a"]["l"].items()[1].text(), "y");
    EXPECT_EQ(root["a"]["l"].items()[1].path(), "a.l[1]");
    root.source().throw_if_mistaken();
}

TEST(Yaml, ReadsJsonAndQuotedScalarsAlike) {
    const Yaml root = read("{\n\t\"a\": \"8\",\n\t\"b\": [1, 2], \"t\": \"2 s\", \"n\": \"0.5\", \"y\": \"true\"\n}\n");
    EXPECT_EQ(root["a"].integer(0, 0, 10), 8);
    EXPECT_EQ(root["b"].items()[1].integer(0, 0, 10), 2);
    EXPECT_EQ(root["t"].time(0), 2'000'000'000);
    EXPECT_EQ(root["n"].number(0, 0, 1), 0.5);
    EXPECT_TRUE(root["y"].boolean(false));
    root.source().throw_if_mistaken();
}

TEST(Yaml, AbsentValuesGiveTheFallback) {
    const Yaml root = read("a:\n");
    EXPECT_FALSE(root["a"].present());
    EXPECT_FALSE(root["b"].present());
    EXPECT_EQ(root["b"]["c"].integer(7, 0, 10), 7);
    EXPECT_EQ(root["b"].text("x"), "x");
    EXPECT_TRUE(root["b"].items().empty());
    EXPECT_FALSE(read("").present());
    EXPECT_FALSE(read("# nothing\n---\n").present());
    root.source().throw_if_mistaken();
}

TEST(Yaml, ReadsQuotesAndByteOrderMarks) {
    const Yaml root = read(
        "\xEF\xBB\xBF"
        "a: 'it''s'\r\nb: \"q\\\"\"\r\nc: |\n  'x\n");
    EXPECT_EQ(root["a"].text(), "it's");
    EXPECT_EQ(root["b"].text(), "q\"");
    EXPECT_EQ(root["c"].text(), "'x\n");
    root.source().throw_if_mistaken();
}

TEST(Yaml, ExpandsAliases) {
    const Yaml root = read("a: &x {k: [1, 2]}\nb: *x\n");
    EXPECT_EQ(root["b"]["k"].items()[1].integer(0, 0, 9), 2);
}

TEST(Yaml, MessageShowsPlaceAndWayOut) {
    const std::string text = "pipeline:\n  micro_batches: 8\n  split: [layer3.0, layer3.0]\n";
    const std::string message = mistakes(text, {}, [](const Yaml& root) {
        root["pipeline"]["split"].items()[1].complain("stage 2 gets no layer", "name another layer");
    });
    EXPECT_EQ(message,
              "error: stage 2 gets no layer\n"
              " --> cfg.yaml:3:21\n"
              "  |\n"
              "3 |   split: [layer3.0, layer3.0]\n"
              "  |                     ^\n"
              "  help: name another layer");
}

TEST(Yaml, OverrideMessageShowsTheOverride) {
    const std::string message = mistakes("a: 1", {"a=2", "b.c=[1, x]"}, [](const Yaml& root) {
        for (const Yaml& item : root["b"]["c"].items())
            item.integer(0, 0, 9);
    });
    EXPECT_TRUE(contains(message, " --> b.c\n  |\n  | b.c=[1, x]\n  |         ^\n")) << message;
}

TEST(Yaml, CaretCountsCharacters) {
    const std::string message =
        mistakes("ключ: [a, b]", {}, [](const Yaml& root) { root["ключ"].items()[1].complain("no", "way"); });
    EXPECT_TRUE(contains(message, "1 | ключ: [a, b]\n  |           ^\n")) << message;
}

TEST(Yaml, LongLinesAreCutAroundThePlace) {
    const std::string message =
        mistakes("[" + std::string(5000, ' ') + "x]", {}, [](const Yaml& root) { root.items()[0].integer(0, 0, 1); });
    EXPECT_LT(message.size(), 600u);
    EXPECT_TRUE(contains(message, "cfg.yaml:1:5002"));
}

TEST(Yaml, CollectsMistakesInOrderOfTheFile) {
    const std::string message = mistakes("a: x\nb: 5\nc: 010\nc: 1\n", {}, [](const Yaml& root) {
        root["c"].integer(0, 0, 100);
        root["b"].time(0);
        root["a"].integer(0, 0, 1);
    });
    const std::size_t a = message.find("cfg.yaml:1:4"), b = message.find("cfg.yaml:2:4"),
                      c = message.find("cfg.yaml:3:4"), again = message.find("cfg.yaml:4:1");
    EXPECT_TRUE(a < b && b < c && c < again && again != std::string::npos) << message;
    EXPECT_TRUE(contains(message, "write 10"));
    EXPECT_TRUE(contains(message, "a number without a unit"));
}

TEST(Yaml, ShowsTwentyMistakes) {
    std::string text = "[x";
    for (int i = 1; i < 25; ++i)
        text += ", x";
    const std::string message = mistakes(text + "]", {}, [](const Yaml& root) {
        for (const Yaml& item : root.items())
            item.integer(0, 0, 1);
    });
    EXPECT_TRUE(contains(message, "and 5 more mistakes"));
}

TEST(Yaml, UnknownKeysSuggestTheNearest) {
    const std::string message = mistakes("micro_batchs: 1\nzzz: 2\n", {}, [](const Yaml& root) {
        root.allow({"micro_batches", "stages"});
    });
    EXPECT_TRUE(contains(message, "did you mean 'micro_batches'?")) << message;
    EXPECT_TRUE(contains(message, "known keys: micro_batches, stages")) << message;
}

TEST(Yaml, ChoicesAreListed) {
    const std::string message = mistakes("a: fifoo\nb: [1]", {}, [](const Yaml& root) {
        EXPECT_EQ(root["a"].choice("lifo", {"fifo", "lifo"}), "lifo");
        EXPECT_EQ(root["b"].choice("lifo", {"fifo", "lifo"}), "lifo");
    });
    EXPECT_TRUE(contains(message, "did you mean 'fifo'? it can be: fifo, lifo")) << message;
    EXPECT_TRUE(contains(message, "'b' is a list")) << message;
}

TEST(Yaml, ClosedChoicesAreReadByTheirTables) {
    const std::string message = mistakes("a: tf32\nb: int4", {}, [](const Yaml& root) {
        EXPECT_EQ(root["a"].choice(Precision::Fp32), Precision::Tf32);
        EXPECT_EQ(root["b"].choice(Precision::Bf16), Precision::Bf16);
        EXPECT_EQ(root["c"].choice(Precision::Bf16), Precision::Bf16);
        EXPECT_EQ(root["c"].choice<Precision>(), std::nullopt);
    });
    EXPECT_TRUE(contains(message, "'b' is 'int4'")) << message;
    EXPECT_TRUE(contains(message, "it can be: fp32, tf32, bf16")) << message;
    EXPECT_FALSE(contains(message, "'a'")) << message;
}

// None of these scalars is a whole number in range, whatever it is in YAML 1.1.
class NoInteger : public testing::TestWithParam<const char*> {};
TEST_P(NoInteger, IsAMistake) {
    const std::string message = mistakes(std::string("a: ") + GetParam(), {},
                                         [](const Yaml& root) { EXPECT_EQ(root["a"].integer(5, 0, 1000), 5); });
    EXPECT_TRUE(contains(message, "'a'")) << message;
    EXPECT_TRUE(contains(message, "help: ")) << message;
}
INSTANTIATE_TEST_SUITE_P(Grid, NoInteger,
                         testing::Values("010", "0x10", "0o10", "1_000", "1e2", "8.0", "+8", "-1", "1001", "~", "",
                                         "''", "[8]", "{b: 8}", "8 9", "99999999999999999999", "yes", "--1", "'-010'"));

class NoNumber : public testing::TestWithParam<const char*> {};
TEST_P(NoNumber, IsAMistake) {
    const std::string message = mistakes(std::string("a: ") + GetParam(), {},
                                         [](const Yaml& root) { EXPECT_EQ(root["a"].number(0.5, 0, 1), 0.5); });
    EXPECT_TRUE(contains(message, "help: ")) << message;
}
INSTANTIATE_TEST_SUITE_P(Grid, NoNumber,
                         testing::Values("nan", ".nan", "inf", ".inf", "1e999", "00.5", "0,5", "2", "-0.1", "0x1",
                                         "x"));

// A text that is not a single, finite, plain document is refused while it is parsed.
struct Refusal {
    std::string text, fact;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.fact; }
class Refused : public testing::TestWithParam<Refusal> {};
TEST_P(Refused, WithPlaceAndWayOut) {
    const std::string message = mistakes(GetParam().text);
    EXPECT_TRUE(contains(message, GetParam().fact)) << message;
    EXPECT_TRUE(contains(message, " --> cfg.yaml")) << message;
    EXPECT_TRUE(contains(message, "  help: ")) << message;
}

std::string billion_laughs() {
    std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 12; ++i) {
        text += fmt::format("a{}: &a{} [", i, i);
        for (int k = 0; k < 10; ++k)
            text += fmt::format("{}*a{}", k ? ", " : "", i - 1);
        text += "]\n";
    }
    return text;
}

std::string deep_aliases() {
    std::string text = "a0: &a0 [x]\n";
    for (int i = 1; i < 100; ++i)
        text += fmt::format("a{}: &a{} [*a{}]\n", i, i, i - 1);
    return text;
}

INSTANTIATE_TEST_SUITE_P(
    Grid, Refused,
    testing::Values(Refusal{"a: 1\nb: 2\na: 3\n", "key 'a' is listed twice (first on line 1)"},
                    Refusal{"{a: {b: 1, b: 2}}", "key 'b' is listed twice"},
                    Refusal{"a: 1\n---\nb: 2\n", "a second document"}, Refusal{"a: 1\n...\n---\n", "a second document"},
                    Refusal{"[1, 2] 3", "a second document"},
                    Refusal{"a: &x [1, *x]\n", "inside the value that it names"},
                    Refusal{"a: &x {b: &y {c: *x}}\n", "inside the value that it names"},
                    Refusal{"a: *nowhere\n", "this is not YAML"},
                    Refusal{billion_laughs(), "aliases expand to more than"}, Refusal{deep_aliases(), "nest more than"},
                    Refusal{std::string(100'000, '['), "nest more than"},
                    Refusal{std::string(100'000, '{'), "nest more than"}, Refusal{"a: [1, 2\n", "this is not YAML"},
                    Refusal{"a: 'x\n", "never closed"}, Refusal{"a: \"x\\\"\nb: 1\n", "never closed"},
                    Refusal{"a: 'x''\n", "never closed"}, Refusal{"a: b: c\n", "this is not YAML"},
                    Refusal{"a:\n  b: 1\n c: 2\n", "this is not YAML"}, Refusal{"\ta: 1\n", "this is not YAML"},
                    Refusal{std::string("a: \0b", 5), "byte 0x00"}, Refusal{"a: \x04", "byte 0x04"},
                    Refusal{"\x7f"
                            "ELF\x02\x01",
                            "byte 0x7f"},
                    Refusal{"a: \xff\xfe", "byte 0xff"}, Refusal{"a: \xc3", "byte 0xc3"},
                    Refusal{"? [a]\n: 1\n", "a key must be text"}, Refusal{"~: 1\n", "a key must be text"},
                    Refusal{"a: !!int 3\n", "the tag"}, Refusal{"a: !thing {b: 1}\n", "the tag"},
                    Refusal{"%YAML 9.9\n---\na: 1\n", "this is not YAML"}));

TEST(Yaml, DashesAloneAreText) { EXPECT_EQ(read(std::string(2000, '-')).text(), std::string(2000, '-')); }

TEST(Yaml, DeepBlockSequencesAreRefused) {
    std::string text;
    for (int i = 0; i < 50'000; ++i)
        text += "- ";
    EXPECT_TRUE(contains(mistakes(text + "x"), "nest more than"));
}

TEST(Set, ReplacesAndCreates) {
    const Yaml root =
        read("a: {b: [1, 2]}\nc: 3\n", {"a.b[1]=7", "a.b.0=6", "x.y.z=[layer3.0, fc]", "c={d: 4}", "c.e=5"});
    EXPECT_EQ(root["a"]["b"].items()[0].integer(0, 0, 9), 6);
    EXPECT_EQ(root["a"]["b"].items()[1].integer(0, 0, 9), 7);
    EXPECT_EQ(root["x"]["y"]["z"].items()[0].text(), "layer3.0");
    EXPECT_EQ(root["c"]["d"].integer(0, 0, 9), 4);
    EXPECT_EQ(root["c"]["e"].integer(0, 0, 9), 5);
    root.source().throw_if_mistaken();
}

TEST(Set, TheLastOneWins) {
    const Yaml root = read("a: 1\n", {"a=2", "a=3"});
    EXPECT_EQ(root["a"].integer(0, 0, 9), 3);
}

TEST(Set, DoesNotReachThroughAliases) {
    const Yaml root = read("a: &x {k: 1}\nb: *x\n", {"b.k=2"});
    EXPECT_EQ(root["a"]["k"].integer(0, 0, 9), 1);
    EXPECT_EQ(root["b"]["k"].integer(0, 0, 9), 2);
}

// `devices: 4` is short for four entries without keys.
TEST(Set, ReachesTheEntriesOfANumber) {
    const Yaml list = read("a: {devices: 3}", {"a.devices[1].speed=2"})["a"]["devices"];
    ASSERT_EQ(list.items().size(), 3u);
    EXPECT_EQ(list.items()[1]["speed"].integer(0, 0, 9), 2);
    EXPECT_FALSE(list.items()[0]["speed"].present());
    EXPECT_TRUE(contains(mistakes("a: {devices: 3}", {"a.devices[3].speed=2"}), "is a list of 3"));
    EXPECT_TRUE(contains(mistakes("a: {devices: 3}", {"a.devices[1]=2"}), "is no list"));
    EXPECT_TRUE(contains(mistakes("a: {devices: -3}", {"a.devices[0].speed=2"}), "is no list"));
}

TEST(Set, FillsAnEmptyFile) { EXPECT_EQ(read("", {"a.b=1"})["a"]["b"].integer(0, 0, 9), 1); }

class BadSet : public testing::TestWithParam<const char*> {};
TEST_P(BadSet, NamesItself) {
    const std::string message = mistakes("a: {b: [1, 2]}\nc: 3\n", {GetParam()});
    EXPECT_TRUE(contains(message, GetParam())) << message;
    const std::string set = GetParam();
    EXPECT_TRUE(contains(message, " --> " + set.substr(0, set.find('=')) + "\n")) << message;
    EXPECT_TRUE(contains(message, "  help: ")) << message;
}
INSTANTIATE_TEST_SUITE_P(Grid, BadSet,
                         testing::Values("", "a", "=", "=5", ".a=1", "a.=1", "a..b=1", "a[=1", "a[]=1", "[0]=1",
                                         "a.b[2]=1", "a.b[-1]=1", "a.b[x]=1", "a.b.k=1", "c.d=1", "a[0]=1", "a.b[0]x=1",
                                         "a=[1", "a={b: 1", "a={b: 1, b: 2}", "a=b: c: d", "a='x", "a=*x"));

// Finishes within the time limit of a test: a search for each key among all earlier ones would take a quarter of an
// hour.
TEST(Load, AMapMayHaveHalfAMillionKeys) {
    std::string text;
    for (int key = 0; key < 500'000; ++key)
        text += fmt::format("key{}: {}\n", key, key);
    const Yaml root = Yaml::parse(std::make_shared<Source>("wide.yaml", text));
    EXPECT_EQ(root["key499999"].text(), "499999");
    EXPECT_TRUE(root.source().clean());
}

TEST(Load, NamesUnreadableFiles) {
    for (const std::string path : {"/nowhere/cfg.yaml", "/"})
        try {
            Yaml::load(path);
            FAIL() << path;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::BadInput);
            EXPECT_TRUE(contains(error.what(), "'" + path + "'")) << error.what();
            EXPECT_TRUE(contains(error.what(), "help: ")) << error.what();
        }
}

TEST(Nearest, IsATypingMistakeAway) {
    EXPECT_EQ(nearest("pipelin", {"pipeline", "run"}), "pipeline");
    EXPECT_EQ(nearest("rnu", {"pipeline", "runs"}), std::nullopt);
    EXPECT_EQ(nearest("completely", {"pipeline", "run"}), std::nullopt);
    EXPECT_EQ(nearest(std::string(1'000'000, 'x'), {"pipeline"}), std::nullopt);
}

}  // namespace
}  // namespace pw
