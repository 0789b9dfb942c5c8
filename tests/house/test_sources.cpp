// Tests that sources do not contain long classes, closed choices compared as text, and parsers and keys in the wrong
// place.
#include "tests/house/tree_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

// The first text of every row, `{"name", ...`, of the tables in `text` that begin with `head` and end before `end`.
std::set<std::string> names_in_tables(const std::string& text, const std::string& head, const std::string& end) {
    const std::string row = "{\"";
    std::set<std::string> names;
    for (std::size_t at = text.find(head); at != std::string::npos; at = text.find(head, at + 1)) {
        const std::string table = text.substr(at, text.find(end, at) - at);
        for (std::size_t name = table.find(row); name != std::string::npos; name = table.find(row, name + 1))
            names.insert(table.substr(name + row.size(), table.find('"', name + row.size()) - name - row.size()));
    }
    return names;
}

// The names of all closed choices (workloads/text/choice.h) and schedules in a source.
std::set<std::string> names_in(const std::string& text) {
    std::set<std::string> names = names_in_tables(text, "inline constexpr Choice<", "};");
    const std::string row = "extern const Schedule ", name = ".name = \"";
    for (std::size_t at = text.find(row); at != std::string::npos; at = text.find(row, at + 1))
        if (const std::size_t begin = text.find(name, at); begin != std::string::npos)
            names.insert(text.substr(begin + name.size(), text.find('"', begin + name.size()) - begin - name.size()));
    return names;
}

// Whether the literal at [begin, end) of `text` is compared with something, also as std::string("name").
bool is_compared(const std::string& text, std::size_t begin, std::size_t end) {
    const auto without_blanks = [](std::string part) {
        std::erase_if(part, [](char c) { return c == ' ' || c == '\n'; });
        return part;
    };
    const std::size_t near = std::min<std::size_t>(begin, 80);
    std::string before = without_blanks(text.substr(begin - near, near)), after = without_blanks(text.substr(end, 80));
    for (const char* wrapper : {"std::string(", "std::string{", "std::string_view(", "std::string_view{"})
        if (before.ends_with(wrapper))
            before.resize(before.size() - std::string(wrapper).size());
    after.erase(0, after.find_first_not_of(")}sv"));
    return before.ends_with("==") || before.ends_with("!=") || before.ends_with(".compare(") ||
           after.starts_with("==") || after.starts_with("!=");
}

// The names of the classes in `text` whose bodies have more than 250 lines; a body ends with "};" at the line's start.
std::vector<std::string> long_classes_in(const std::string& text) {
    constexpr int kMostLines = 250;
    std::istringstream lines(text);
    std::vector<std::string> names;
    std::string line, name;
    for (int in_body = 0; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string kind, word;
        if (name.empty() && words >> kind >> word && (line.starts_with("class ") || line.starts_with("struct ")) &&
            line.ends_with("{")) {
            name = word.substr(0, word.find(':'));
            in_body = 0;
        } else if (line.starts_with("};")) {
            if (!name.empty() && in_body > kMostLines)
                names.push_back(name);
            name.clear();
        } else {
            ++in_body;
        }
    }
    return names;
}

// One line per place in `text` that parses JSON by itself.
std::string json_parsers_in(std::string text) {
    std::string complaints;
    std::erase_if(text, [](char c) { return c == ' ' || c == '\t'; });
    for (const std::string call :
         {"::parse(", "::accept(", "::sax_parse(", "::from_cbor(", "::from_msgpack(", "::from_ubjson(", "::from_bson(",
          "::from_bjdata(", "json_sax", "detail::parser", ">>json"})
        for (std::size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
            const std::size_t line = text.rfind('\n', at) + 1;
            const std::string before = text.substr(line, at - line);
            if (call == "::parse(" && before.ends_with("Yaml"))
                continue;
            complaints += "line " + std::to_string(1 + std::ranges::count(text.substr(0, at), '\n')) + ": " + before +
                          call + "\n";
        }
    return complaints;
}

// One line per literal in `text` that is one of `names` and is compared.
std::string comparisons_in(const std::string& text, const std::set<std::string>& names) {
    std::string complaints;
    for (const std::string& name : names) {
        const std::string literal = '"' + name + '"';
        for (std::size_t at = text.find(literal); at != std::string::npos; at = text.find(literal, at + 1))
            if (is_compared(text, at, at + literal.size()))
                complaints += "line " + std::to_string(1 + std::ranges::count(text.substr(0, at), '\n')) +
                              ": compares with " + literal + " as text\n";
    }
    return complaints;
}

// A literal of a source, and the line where it begins.
struct Literal {
    long line;
    std::string text;
};

// The literals between double quotes; not those of comments and includes.
std::vector<Literal> literals_in(const std::string& text) {
    std::vector<Literal> literals;
    const auto line_at = [&](std::size_t at) {
        return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    };
    for (std::size_t at = 0; at < text.size(); ++at) {
        const bool starts_line = at == 0 || text[at - 1] == '\n';
        if (text.compare(at, 2, "//") == 0 || (starts_line && text[at] == '#')) {
            at = std::min(text.find('\n', at), text.size());
        } else if (text[at] == '\'' && at > 0 && !std::isalnum(static_cast<unsigned char>(text[at - 1]))) {
            at = text.find('\'', at + (text.compare(at + 1, 1, "\\") == 0 ? 3 : 2));
        } else if (text[at] == '"') {
            const std::size_t begin = at + 1;
            const bool raw = at > 0 && text[at - 1] == 'R';
            if (raw)
                at = text.find(")\"", at) + 1;
            else
                while (text[++at] != '"')
                    at += text[at] == '\\' ? 1 : 0;
            literals.push_back({line_at(begin), text.substr(begin, at - begin)});
        }
    }
    return literals;
}

// One line per literal in `text` that names a key of the config, "pipeline.stages".
std::string config_keys_in(const std::string& text) {
    static const std::regex kKey(R"(\b(workload|cluster|pipeline|training|run|transfer|search|sweep)\.[a-z_]+)");
    std::string complaints;
    for (const Literal& literal : literals_in(text))
        if (std::regex_search(literal.text, kKey))
            complaints += "line " + std::to_string(literal.line) + ": " + literal.text + "\n";
    return complaints;
}

// One line per switch in `text` over operations (schedules/plan/op.h) that has a default.
std::string defaults_over_op_in(const std::string& text) {
    std::string complaints;
    for (std::size_t at = text.find("switch ("); at != std::string::npos; at = text.find("switch (", at + 1)) {
        std::string labels;  // the text at the depth of the switch's own cases
        int depth = 0;
        for (std::size_t i = text.find('{', at); i < text.size(); ++i) {
            depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
            if (depth == 0)
                break;
            if (depth == 1)
                labels += text[i];
        }
        if (labels.find("case Op::") != std::string::npos && labels.find("default:") != std::string::npos)
            complaints += "line " + std::to_string(1 + std::ranges::count(text.substr(0, at), '\n')) + "\n";
    }
    return complaints;
}

}  // namespace

// A closed choice is read once, by its table; then it is a value, and the compiler checks comparisons.
TEST(Sources, ComparesClosedChoicesNowhereAsText) {
    std::map<std::string, std::string> sources;
    std::set<std::string> names;
    for (const auto& [folder, allowed] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder))
            names.merge(names_in(sources[fs::relative(path, kRoot).string()] = text_of(path)));
    for (const fs::path& path : sources_below(kRoot / "bench"))
        sources[fs::relative(path, kRoot).string()] = text_of(path);
    for (const char* known : {"mse", "nccl", "deferred", "rendezvous", "vertical_sync", "piper", "even", "1f1b"})
        EXPECT_TRUE(names.contains(known)) << known;
    const std::map<std::string, std::string> others = {{"exec/system/disturbance.cpp", "cpu"}};  // a line of /proc/stat
    for (const auto& [path, text] : sources) {
        std::set<std::string> closed = names;
        if (others.contains(path))
            closed.erase(others.at(path));
        EXPECT_EQ(comparisons_in(text, closed), "") << path;
    }
}

// What the config calls a setting is known from job/ upwards (job/settings.h).
TEST(Sources, NamesKeysOfTheConfigOnlyWhereItIsKnown) {
    for (const char* folder : {"workloads", "schedules", "sim", "viz"})
        for (const fs::path& path : sources_below(kRoot / folder))
            EXPECT_EQ(config_keys_in(text_of(path)), "") << path << ": say which Setting it is (workloads/setting.h)";
}

// With a default, the compiler would not ask what a new operation does there.
TEST(Sources, SwitchesOverOperationsHaveNoDefault) {
    std::vector<fs::path> sources = sources_below(kRoot / "bench");
    for (const fs::path& path : sources_below(kRoot / "tests"))
        sources.push_back(path);
    for (const auto& [folder, allowed] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder))
            sources.push_back(path);
    std::erase(sources, kRoot / "tests/house/test_sources.cpp");  // its literals
    for (const fs::path& path : sources)
        EXPECT_EQ(defaults_over_op_in(text_of(path)), "") << path;
}

// A long class is as hard to read as a long function.
TEST(Sources, ClassesAreShort) {
    for (const auto& [folder, allowed] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder))
            EXPECT_EQ(long_classes_in(text_of(path)), std::vector<std::string>{}) << path;
}

// JSON from outside is bounded in one place, so that no reader forgets it.
TEST(Sources, ParsesJsonInOnePlace) {
    std::vector<fs::path> sources = sources_below(kRoot / "bench");
    for (const auto& [folder, allowed] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder))
            sources.push_back(path);
    const fs::path only = kRoot / "workloads/text/json_text.h";
    std::erase(sources, only);
    for (const fs::path& path : sources)
        EXPECT_EQ(json_parsers_in(text_of(path)), "") << path << ": parse_json() of " << only << " does";
    EXPECT_NE(json_parsers_in(text_of(only)), "");
}

TEST(SourcesTest, SeesParsersOfJson) {
    for (const char* line : {"auto a = Json::parse(text);", "nlohmann::json::parse(text, nullptr, false)",
                             "nlohmann::ordered_json :: parse (text)", "json::sax_parse(text, &sax)", "file >> json;",
                             "Json::from_cbor(bytes)", "class Sax : nlohmann::json_sax<Json>", "json::accept(text)"})
        EXPECT_NE(json_parsers_in(line), "") << line;
    for (const char* line : {"Yaml::parse(source)", "parse_json(text, name)", "parse(file)", "json.dump()"})
        EXPECT_EQ(json_parsers_in(line), "") << line;
    EXPECT_EQ(json_parsers_in("\n  json::parse(x)"), "line 2: json::parse(\n");
}

TEST(SourcesTest, SeesKeysOfTheConfig) {
    EXPECT_EQ(config_keys_in("\nfail(\"no \\\" stages\\n  help: set pipeline.stages\");"),
              "line 2: no \\\" stages\\n  help: set pipeline.stages\n");
    for (const char* line : {R"x(R"({"key":"cluster.link"})")x", R"(x == '"' ? "run.backend" : "")"})
        EXPECT_NE(config_keys_in(line), "") << line;
    for (const char* line : {R"(#include "exec/training.h")", R"(a = 1;  // "pipeline.stages")", "pipeline.stages = 3;",
                             R"(fail("a pipeline. Stages"))", R"(x == '"'; pipeline.stages; y == '"')"})
        EXPECT_EQ(config_keys_in(line), "") << line;
}

TEST(SourcesTest, SeesDefaultsOverOperations) {
    EXPECT_EQ(defaults_over_op_in("\nswitch (op) {\n case Op::Forward: {\n}\n default:\n}"), "line 2\n");
    EXPECT_EQ(defaults_over_op_in("switch (op) { case Op::Forward: { switch (x) { default: } } }"), "");
    EXPECT_EQ(defaults_over_op_in("switch (op) { case Op::Forward: } switch (x) { case X::Y: default: }"), "");
}

TEST(SourcesTest, SeesLongClasses) {
    const auto with_body = [](int lines) {
        std::string text = "class Short {\n    int a;\n};\n\nclass Long : Base {\n";
        for (int line = 0; line < lines; ++line)
            text += "    int b;\n";
        return text + "};\n";
    };
    EXPECT_EQ(long_classes_in(with_body(250)), std::vector<std::string>{});
    EXPECT_EQ(long_classes_in(with_body(251)), std::vector<std::string>{"Long"});
}

TEST(SourcesTest, SeesChoicesThatAreComparedAsText) {
    const std::string tables =
        "template <>\ninline constexpr Choice<Loss> kChoices<Loss>[] = {\n    {\"mse\", Loss::Mse},\n    {\"l1\", "
        "Loss::L1}};\nextern const Schedule kGpipe{.name = \"gpipe\",\n    .in_flight = \"p-d\"};\n"
        "extern const Schedule kZbV{\n    .name = \"zb-v\"};\nauto other = {\"else\", 1};\n";
    const std::set<std::string> names = names_in(tables);
    EXPECT_EQ(names, (std::set<std::string>{"gpipe", "l1", "mse", "zb-v"}));
    EXPECT_EQ(comparisons_in(tables, names), "");
    EXPECT_EQ(comparisons_in("\nif (loss == \"mse\")\n", names), "line 2: compares with \"mse\" as text\n");
    for (const char* line : {"loss != \"l1\"", "loss ==\n    \"mse\"", "\"mse\" == loss", "\"mse\"sv != loss",
                             "loss == std::string(\"mse\")", "std::string_view{\"mse\"} == loss",
                             "loss.compare(\"mse\") == 0", "schedule.name != \"zb-v\"", "a == \"mse\" ? 1 : 2"})
        EXPECT_NE(comparisons_in(line, names), "") << line;
    for (const char* line : {"loss == \"mse2\"", "loss == Loss::Mse", "print(\"mse\")", "key = \"mse\";",
                             "{\"mse\", 1}", "n == 1 ? \"mse\" : \"l1\"", "f(\"mse\", a == b)"})
        EXPECT_EQ(comparisons_in(line, names), "") << line;
}
