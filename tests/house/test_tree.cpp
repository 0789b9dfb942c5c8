// The tree of folders and of the rooms in them: data flows one way, from workloads to cli.
#include "tests/house/tree_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

// The file between quotes or brackets; empty when the line includes nothing.
std::string included_by(std::string line) {
    line.erase(std::remove_if(line.begin(), line.end(), [](char c) { return c == ' ' || c == '\t'; }), line.end());
    const std::string directive = "#include";
    if (line.rfind(directive, 0) != 0 || line.size() <= directive.size() + 1)
        return "";
    const auto begin = directive.size() + 1;
    const auto end = line.find_first_of("\">", begin);
    return end == std::string::npos ? "" : line.substr(begin, end - begin);
}

// One line per include in `text`, a source of `folder`, that the table forbids.
std::string forbidden_in(const std::string& folder, std::istream& text) {
    std::string complaints, line;
    for (int number = 1; std::getline(text, line); ++number) {
        const std::string file = included_by(line);
        const std::string from = file.substr(0, file.find('/'));
        const bool ours = from == "tests" || from == "bench" || kMayInclude.contains(from);
        const bool quoted = line.find('"') != std::string::npos;
        if (file.empty() || from == folder || kMayInclude.at(folder).contains(from) || (!ours && !quoted))
            continue;
        complaints += "line " + std::to_string(number) + ": " + folder + " must not include " + file + "\n";
    }
    return complaints;
}

// The room of a file: its folder. Sources in a top folder itself join the rooms below it, and no file includes them.
std::string room_of(const std::string& file) {
    const std::string folder = file.substr(0, file.rfind('/'));
    const bool joins = folder.find('/') == std::string::npos && !file.ends_with(".h");
    return joins ? folder + "/*.cpp" : folder;
}

using Rooms = std::map<std::string, std::set<std::string>>;  // room -> the rooms that it includes

// "a -> b -> a", the first cycle that is reached from `room`; empty if there is none.
std::string circle_from(const std::string& room, const Rooms& rooms, std::vector<std::string>& path,
                        std::set<std::string>& seen) {
    if (const auto met = std::find(path.begin(), path.end(), room); met != path.end()) {
        std::string circle;
        for (auto at = met; at != path.end(); ++at)
            circle += *at + " -> ";
        return circle + room;
    }
    if (!rooms.contains(room) || !seen.insert(room).second)
        return "";
    path.push_back(room);
    for (const std::string& next : rooms.at(room))
        if (const std::string circle = circle_from(next, rooms, path, seen); !circle.empty())
            return circle;
    path.pop_back();
    return "";
}

std::string circle_in(const Rooms& rooms) {
    std::set<std::string> seen;
    for (const auto& [room, includes] : rooms) {
        std::vector<std::string> path;
        if (const std::string circle = circle_from(room, rooms, path, seen); !circle.empty())
            return circle;
    }
    return "";
}

std::string forbidden_in(const std::string& folder, const std::string& text) {
    std::istringstream stream(text);
    return forbidden_in(folder, stream);
}

}  // namespace

TEST(Tree, HasNoForbiddenInclude) {
    int sources = 0;
    for (const auto& [folder, allowed] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder)) {
            std::ifstream file(path);
            EXPECT_EQ(forbidden_in(folder, file), "") << path;
            ++sources;
        }
    EXPECT_GT(sources, 20) << "no sources in " << kRoot;
}

TEST(Tree, HasARowForEveryFolderOfSources) {
    for (const auto& entry : fs::directory_iterator(kRoot)) {
        const std::string name = entry.path().filename().string();
        if (!entry.is_directory() || name.rfind("build", 0) == 0 || name.front() == '.' || name == "tests" ||
            name == "bench" || name == "examples")
            continue;
        EXPECT_TRUE(kMayInclude.contains(name) || sources_below(entry.path()).empty())
            << name << " has sources, but no row in the table of this test";
    }
}

TEST(Tree, HasNoFolderForLeftovers) {
    const std::set<std::string> leftovers = {"utils", "util", "misc", "common", "helpers"};
    for (const auto& [folder, allowed] : kMayInclude) {
        if (!fs::exists(kRoot / folder))
            continue;
        for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
            EXPECT_FALSE(entry.is_directory() && leftovers.contains(entry.path().filename().string())) << entry.path();
    }
    for (const std::string& name : leftovers)
        EXPECT_FALSE(fs::exists(kRoot / name)) << name;
}

TEST(Tree, RoomsMakeNoCircle) {
    Rooms rooms;
    for (const auto& [folder, allowed] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder)) {
            const std::string room = room_of(fs::relative(path, kRoot).string());
            std::ifstream file(path);
            for (std::string line; std::getline(file, line);)
                if (const std::string other = room_of(included_by(line)); other != room)
                    rooms[room].insert(other);
        }
    EXPECT_EQ(circle_in(rooms), "");
    EXPECT_GT(rooms.size(), 30u) << "few rooms in " << kRoot;
}

TEST(Tree, HeadersAreIncludedOnce) {
    for (const auto& [folder, allowed] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder)) {
            if (path.extension() != ".h")
                continue;
            EXPECT_NE(text_of(path).find("#pragma once\n"), std::string::npos) << path;
        }
}

TEST(Scripts, PrintTheirUsage) {
    for (const auto& entry : fs::directory_iterator(kRoot / "scripts")) {
        const fs::path& script = entry.path();
        const std::string command = "timeout 60 '" + script.string() + "' --help 2>&1 </dev/null";
        FILE* const pipe = popen(command.c_str(), "r");
        ASSERT_NE(pipe, nullptr);
        std::string said(5, ' ');
        said.resize(std::fread(said.data(), 1, said.size(), pipe));
        while (std::fgetc(pipe) != EOF) {
        }
        EXPECT_EQ(pclose(pipe), 0) << script;
        EXPECT_EQ(said, "usage") << script;
    }
}

TEST(TreeTest, SeesWhatItLooksFor) {
    EXPECT_EQ(forbidden_in("sim", "#include \"exec/execute.h\"\n"), "line 1: sim must not include exec/execute.h\n");
    EXPECT_EQ(forbidden_in("exec", "\n  #  include <sim/simulate.h>\n"),
              "line 2: exec must not include sim/simulate.h\n");
    EXPECT_NE(forbidden_in("workloads", "#include \"schedules/plan/plan.h\""), "");
    EXPECT_NE(forbidden_in("viz", "#include \"../sim/metrics.h\""), "");
    EXPECT_NE(forbidden_in("cli", "#include \"tests/sample.h\""), "");
    EXPECT_NE(forbidden_in("cli", "#include \"command.h\""), "");  // always with the folder
    EXPECT_EQ(forbidden_in("cli", "#include \"exec/execute.h\""), "");
    EXPECT_EQ(forbidden_in("sim", "#include <vector>\n#include \"sim/metrics.h\"\n// #include \"exec/execute.h\"\n"),
              "");
}

TEST(TreeTest, SeesCircles) {
    EXPECT_EQ(circle_in({{"a", {"b", "c"}}, {"b", {"c"}}}), "");
    EXPECT_EQ(circle_in({{"a", {"b"}}, {"b", {"c", "d"}}, {"c", {}}, {"d", {"b"}}}), "b -> d -> b");
    EXPECT_EQ(room_of("exec/cpu/norm.cpp"), "exec/cpu");
    EXPECT_EQ(room_of("exec/execute.h"), "exec");
    EXPECT_EQ(room_of("exec/oracle.cpp"), "exec/*.cpp");
}
