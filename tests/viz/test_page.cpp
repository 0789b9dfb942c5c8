// Pages of timelines: what they hold, and that texts in them are only texts. tests/page runs their script.
#include "tests/support/plot_rig.h"
#include "viz/page/columns.h"

#include <nlohmann/json.hpp>

#include <cstdint>

namespace pw {
namespace {

// The data of a page that are not in columns.
nlohmann::json facts_of_page(const std::string& page) {
    const std::string open = "<script type=\"application/json\" id=\"facts\">";
    const std::size_t begin = page.find(open) + open.size();
    return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST_F(Plot, ThePageIsSelfContained) {
    plot(both(), file("steps.html"));
    const std::string page = contents(file("steps.html"));
    expect_parts(page, {"<!doctype html>", "device 1 · stage 1", "measured, 1f1b", "backward", "weight version",
                        "micro-batch", "duration", "</html>"});
    for (const char* outside : {"http:", "https:", "src=", "import ", "fetch(", "@import", "url("})
        EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

TEST_F(Plot, ATitleCannotLeaveThePagesScript) {
    const std::string title = "</script><script>alert(1)</script><!--tables-->";
    Panel panel{&predicted_, title};
    panel.tables = {{title, {{title}, {title}}}};
    panel.names = {title, title};
    panel.causes = {{title, title}};
    plot({panel, panel}, file("title.html"));
    const std::string page = contents(file("title.html"));
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    const auto facts = facts_of_page(page);
    EXPECT_EQ(facts["panels"][0]["title"], title);
    EXPECT_EQ(facts["panels"][1]["names"][1], title);
    EXPECT_EQ(facts["panels"][0]["rows"].size(), 2u);
    expect_parts(page, {"<td>&lt;/script&gt;&lt;script&gt;alert(1)", "name: &quot;quoted&quot;"});
}

// The page draws operations by the facts in its data.
TEST_F(Plot, ThePageHasTheDataOfEveryOperation) {
    plot(both(), file("ops.html"));
    const auto facts = facts_of_page(contents(file("ops.html")));
    ASSERT_EQ(facts["ops"].size(), std::size_t{kOps});
    for (int number = 0; number < kOps; ++number) {
        const auto& op_facts = facts["ops"][number];
        const Op op = static_cast<Op>(number);
        EXPECT_EQ(op_facts["letters"], letters_of(op));
        EXPECT_EQ(op_facts["transfer"], moves_data(op));
        EXPECT_EQ(op_facts["receive"], brings_data(op));
        EXPECT_EQ(op_facts["compute"], is_compute(op));
        EXPECT_EQ(op_facts["hatched"], op == Op::Recompute);
    }
    const auto& panel = facts["panels"][0];
    for (const auto& [name, column] : panel["boxes"].items())
        EXPECT_EQ(column["count"], predicted_.events.size()) << name;
    EXPECT_EQ(facts["legend"].back()["words"], "gradients");
}

// Differences 5, -3, 200 and 2^40 are the numbers 10, 5, 400 and 2^41: 400 = 16 + 3 * 128, and 2^41 = 2^6 * 128^5.
TEST(Columns, AreDifferencesInBytesOfSevenBits) {
    Columns columns;
    const std::int64_t far = std::int64_t{1} << 40;
    const auto column = columns.add({5, 2, 202, 202 + far});
    EXPECT_EQ(column["count"], 4);
    EXPECT_EQ(column["bytes"], 1 + 1 + 2 + 6);
    const auto same = columns.add({7, 7, 7}), empty = columns.add({});
    EXPECT_EQ(same["same"], 7);
    EXPECT_EQ(empty["count"], 0);
    EXPECT_EQ(columns.text().substr(0, 4), "H4sI") << "gzip";
}

TEST(Columns, AreTextInBase64) {
    EXPECT_EQ(base64(""), "");
    EXPECT_EQ(base64("f"), "Zg==");
    EXPECT_EQ(base64("fo"), "Zm8=");
    EXPECT_EQ(base64("foo"), "Zm9v");
    EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
    EXPECT_EQ(base64("\xff\xfe"), "//4=");
}

TEST_F(Plot, APageHasMoreRowsThanAPicture) {
    const Trace wide = sample_trace({.devices = 300, .microbatches = 2});
    plot({{&wide, "wide"}}, file("wide.html"));
    EXPECT_EQ(facts_of_page(contents(file("wide.html")))["panels"][0]["rows"].size(), 300u);
    expect_error(ExitCode::BadInput, {"up to 256 devices"}, [&] { plot({{&wide, "wide"}}, file("wide.gp")); });
}

}  // namespace
}  // namespace pw
