#include "workloads/text/yaml_tree.h"

#include "workloads/text/files.h"
#include "workloads/text/printable.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>

namespace pw {
namespace {

constexpr std::size_t kMostDepth = 64;
constexpr int kMostKey = 1024;
constexpr std::size_t kMostAliased = 100'000;

// A mistake after which the rest of the text cannot be read.
struct Unreadable {
    Place place;
    std::string fact, help;
};

// The origin of a parser's text: the file, or the value of the n-th override.
struct Origin {
    int set = 0;
    int column = 0;

    Place place(const YAML::Mark& mark) const {
        if (mark.is_null())
            return {0, 0, set};
        if (set != 0)
            return {0, mark.line == 0 ? column + mark.column + 1 : 0, set};
        return {mark.line + 1, mark.column + 1, 0};
    }
};

// Builds the tree from the parser's events: yaml-cpp's own nodes would hide repeated keys' positions, turn aliases into
// shared, possibly cyclic nodes, and forget what a scalar looked like.
class TreeBuilder final : public YAML::EventHandler {
public:
    TreeBuilder(Source& source, const std::string& text, Origin origin)
        : source_(source), text_(text), origin_(origin) {}
    YamlNode take() { return std::move(root_); }

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}

    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        finish(make(YamlNode::Kind::Null, mark), anchor, 1);
    }

    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        reject_tag(mark, tag);
        if (!closed_quote(static_cast<std::size_t>(mark.pos)))
            throw Unreadable{origin_.place(mark), "this quote is never closed", "end the text with the same quote"};
        YamlNode node = make(YamlNode::Kind::Text, mark);
        node.text = value;
        finish(std::move(node), anchor, 1);
    }

    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        const auto found = anchors_.find(anchor);
        if (found == anchors_.end())
            throw Unreadable{origin_.place(mark), "this alias is inside the value that it names",
                             "a value cannot contain itself; write the inner one out"};
        const std::size_t size = found->second.size;
        aliased_ += size;
        if (aliased_ > kMostAliased)
            throw Unreadable{origin_.place(mark), fmt::format("aliases expand to more than {} values", kMostAliased),
                             "write the values out, or alias smaller parts"};
        if (open_.size() + found->second.depth > kMostDepth)
            throw too_deep(mark);
        finish(found->second.node, 0, size, found->second.depth);
    }

    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        open(mark, tag, anchor, YamlNode::Kind::List);
    }
    void OnSequenceEnd() override { close(); }

    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        open(mark, tag, anchor, YamlNode::Kind::Map);
    }
    void OnMapEnd() override { close(); }

private:
    struct Open {
        YamlNode node;
        YAML::anchor_t anchor;
        std::size_t size = 1, depth = 1;
        bool key_read = false;                  // of a map: the next value belongs to the last key
        bool dropped = false;                   // the last key is repeated or impossible
        std::map<std::string, int> known = {};  // keys of a map and their lines
    };
    struct Anchored {
        YamlNode node;
        std::size_t size, depth;
    };

    YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) const {
        YamlNode node;
        node.kind = kind;
        node.place = origin_.place(mark);
        return node;
    }

    Unreadable too_deep(const YAML::Mark& mark) const {
        return {origin_.place(mark), fmt::format("values nest more than {} deep", kMostDepth),
                "no key of a configuration needs that; check the brackets"};
    }

    void reject_tag(const YAML::Mark& mark, const std::string& tag) {
        if (!tag.empty() && tag != "?" && tag != "!")
            source_.complain(origin_.place(mark), fmt::format("the tag '{}' has no meaning here", tag),
                             "remove it; the key alone says what type its value has");
    }

    // yaml-cpp takes the end of the file for the end of a quoted scalar.
    bool closed_quote(std::size_t at) const {
        const char quote = at < text_.size() ? text_[at] : ' ';
        if (quote != '"' && quote != '\'')
            return true;
        for (++at; at < text_.size(); ++at) {
            if (quote == '"' && text_[at] == '\\')
                ++at;
            else if (text_[at] == quote && quote == '\'' && at + 1 < text_.size() && text_[at + 1] == quote)
                ++at;  // '' is an apostrophe
            else if (text_[at] == quote)
                return true;
        }
        return false;
    }

    void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
        if (open_.size() == kMostDepth)
            throw too_deep(mark);
        reject_tag(mark, tag);
        open_.push_back({make(kind, mark), anchor});
    }

    void close() {
        Open done = std::move(open_.back());
        open_.pop_back();
        finish(std::move(done.node), done.anchor, done.size, done.depth);
    }

    void finish(YamlNode node, YAML::anchor_t anchor, std::size_t size, std::size_t depth = 0) {
        if (anchor != 0)
            anchors_[anchor] = {node, size, depth};
        if (open_.empty()) {
            root_ = std::move(node);
            return;
        }
        Open& parent = open_.back();
        parent.size += size;
        parent.depth = std::max(parent.depth, depth + 1);
        if (parent.node.kind == YamlNode::Kind::List)
            parent.node.items.push_back(std::move(node));
        else if (!parent.key_read)
            add_key(parent, node);
        else
            add_value(parent, std::move(node));
    }

    void add_key(Open& map, const YamlNode& key) {
        map.key_read = true;
        if (key.kind != YamlNode::Kind::Text) {
            // yaml-cpp reads the beginning of a longer key as no key
            source_.complain(key.place, fmt::format("a key must be text of at most {} letters", kMostKey),
                             "quote it if it is a name: \"null\"");
            map.dropped = true;
            return;
        }
        if (const auto [first, fresh] = map.known.try_emplace(key.text, key.place.line); !fresh) {
            const std::string where = first->second > 0 ? fmt::format(" (first on line {})", first->second) : "";
            source_.complain(key.place, fmt::format("key '{}' is listed twice{}", key.text, where),
                             "keep one of the two");
            map.dropped = true;
            return;
        }
        map.node.keys.push_back({key.text, key.place});
    }

    void add_value(Open& map, YamlNode value) {
        map.key_read = false;
        if (!map.dropped)
            map.node.items.push_back(std::move(value));
        map.dropped = false;
    }

    Source& source_;
    const std::string& text_;
    Origin origin_;
    YamlNode root_;
    std::vector<Open> open_;
    std::map<YAML::anchor_t, Anchored> anchors_;  // of finished values only
    std::size_t aliased_ = 0;
};

// Text after the end of the first document.
class NothingMore final : public YAML::EventHandler {
public:
    explicit NothingMore(Origin origin) : origin_(origin) {}
    void OnDocumentStart(const YAML::Mark& mark) override {
        throw Unreadable{origin_.place(mark), "a second document begins here",
                         "one file holds one document: remove the rest, or put it into its own file"};
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
    void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
    void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
    void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnSequenceEnd() override {}
    void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnMapEnd() override {}

private:
    Origin origin_;
};

// yaml-cpp takes some control characters for the end of the text and replaces broken UTF-8 silently.
void check_characters(const std::string& text, Origin origin) {
    if (text.size() > kMostText)
        throw Unreadable{{0, 0, origin.set},
                         fmt::format("{} of text is no configuration", print_bytes(static_cast<Bytes>(text.size()))),
                         fmt::format("at most {} are read", print_bytes(static_cast<Bytes>(kMostText)))};
    YAML::Mark mark;
    mark.line = mark.column = mark.pos = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = static_cast<unsigned char>(text[at]);
        const std::size_t length = utf8_length(text, at);
        const bool control = (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
        if (length == 0 || control)
            throw Unreadable{origin.place(mark), fmt::format("byte 0x{:02x} is not text", byte),
                             "write plain UTF-8; is this a YAML file at all?"};
        at += length;
        mark.column = byte == '\n' ? 0 : mark.column + static_cast<int>(length);
        mark.line += byte == '\n' ? 1 : 0;
    }
}

bool begins_with_tab(const std::string& text, const YAML::Mark& mark) {
    if (mark.is_null() || static_cast<std::size_t>(mark.pos) > text.size())
        return false;
    const std::size_t end = static_cast<std::size_t>(mark.pos);
    const std::size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
    const std::size_t first = text.find_first_not_of(' ', before == std::string::npos ? 0 : before + 1);
    return first != std::string::npos && text[first] == '\t';
}

// Whether a file's name is of YAML or JSON, or gives no format.
bool has_yaml_name(std::string_view name) {
    const std::size_t dot = name.rfind('.'), folder = name.rfind('/');
    if (dot == std::string_view::npos || (folder != std::string_view::npos && dot < folder))
        return true;
    const std::string_view suffix = name.substr(dot);
    return suffix == ".yaml" || suffix == ".yml" || suffix == ".json";
}

YamlNode read_document(Source& source, const std::string& text, Origin origin) {
    check_characters(text, origin);
    std::istringstream stream(text);
    TreeBuilder builder(source, text, origin);
    try {
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(builder))
            return {};
        NothingMore nothing_more(origin);
        parser.HandleNextDocument(nothing_more);
    } catch (const YAML::Exception& error) {
        throw Unreadable{origin.place(error.mark), fmt::format("this is not YAML: {}", error.msg),
                         begins_with_tab(text, error.mark) ? "this line begins with a tab: indent with spaces"
                         : error.mark.column > kMostKey    ? fmt::format("a key has at most {} letters", kMostKey)
                         : origin.set == 0 && !has_yaml_name(source.name())
                             ? fmt::format("name a config, a YAML file: is '{}' one?", source.name())
                             : "check indentation, brackets and quotes near this place"};
    }
    return builder.take();
}

// A step of a key path: a key, or a number in a list.
struct Step {
    std::string name;
    bool bracketed = false;
};

// "a.b[1].c" -> a, b, [1], c. Empty when malformed.
std::vector<Step> split_path(std::string_view path) {
    std::vector<Step> steps;
    while (!path.empty()) {
        const std::size_t end = std::min(path.find_first_of(".["), path.size());
        if (end == 0)
            return {};
        steps.push_back({std::string(path.substr(0, end)), false});
        path.remove_prefix(end);
        while (path.starts_with('[')) {
            const std::size_t close = path.find(']');
            if (close == std::string_view::npos || close < 2)
                return {};
            steps.push_back({std::string(path.substr(1, close - 1)), true});
            path.remove_prefix(close + 1);
        }
        if (path.empty())
            return steps;
        if (!path.starts_with('.'))
            return {};
        path.remove_prefix(1);
    }
    return {};  // empty, or a dot at the end
}

std::optional<std::size_t> list_index(const std::string& text) {
    if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
        return std::nullopt;
    return std::stoul(text);
}

constexpr const char* kHowToSet = "write --set BLOCK.KEY=VALUE";

constexpr std::int64_t kMostCounted = 1'000'000;

// `devices: 4` is short for a list of four entries without keys. Returns whether the node is such a number, and makes
// it the list.
bool make_list_of_number(YamlNode& node) {
    const std::optional<std::size_t> count = list_index(node.text);
    if (node.kind != YamlNode::Kind::Text || !count || *count > kMostCounted)
        return false;
    YamlNode entry;
    entry.kind = YamlNode::Kind::Map;
    entry.place = node.place;
    node.kind = YamlNode::Kind::List;
    node.text.clear();
    node.items.assign(*count, entry);
    return true;
}

// The value that the steps lead to, made when missing.
YamlNode& walk(YamlNode& root, const std::vector<Step>& steps, Place place) {
    YamlNode* node = &root;
    std::string path;
    for (const Step& step : steps) {
        const std::string here = path.empty() ? "the file" : fmt::format("'{}'", path);
        path += step.bracketed ? "[" + step.name + "]" : (path.empty() ? "" : ".") + step.name;
        const bool is_key_of_entry = step.bracketed && &step != &steps.back() && !(&step)[1].bracketed;
        if (node->kind == YamlNode::Kind::List || (is_key_of_entry && make_list_of_number(*node))) {
            const std::optional<std::size_t> index = list_index(step.name);
            if (!index || *index >= node->items.size())
                throw Unreadable{place,
                                 fmt::format("{} is a list of {}: it has no '{}'", here, node->items.size(), step.name),
                                 "count from 0, or set the whole list"};
            node = &node->items[*index];
            continue;
        }
        if (node->kind == YamlNode::Kind::Text || step.bracketed)
            throw Unreadable{place,
                             fmt::format("{} is no {}: cannot set '{}'", here, step.bracketed ? "list" : "map", path),
                             fmt::format("set {} itself to a new value", here)};
        node->kind = YamlNode::Kind::Map;
        const auto found = std::find_if(node->keys.begin(), node->keys.end(),
                                        [&](const YamlNode::Key& key) { return key.name == step.name; });
        const std::size_t at = static_cast<std::size_t>(found - node->keys.begin());
        if (found == node->keys.end()) {
            node->keys.push_back({step.name, place});
            node->items.emplace_back().place = place;
        }
        node = &node->items[at];
    }
    return *node;
}

// Removes a key, as if the file did not have it.
void take_away(YamlNode& root, const std::vector<Step>& steps) {
    YamlNode* node = &root;
    for (const Step& step : steps) {
        const auto found = std::find_if(node->keys.begin(), node->keys.end(),
                                        [&](const YamlNode::Key& key) { return key.name == step.name; });
        if (found == node->keys.end())
            return;
        const auto at = found - node->keys.begin();
        if (&step == &steps.back()) {
            node->keys.erase(found);
            node->items.erase(node->items.begin() + at);
            return;
        }
        node = &node->items[static_cast<std::size_t>(at)];
    }
}

void apply_override(Source& source, YamlNode& root, const std::string& text) {
    const int set = source.add_override(text);
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
        throw Unreadable{{0, 0, set}, fmt::format("--set {} has no '='", text), kHowToSet};
    const std::vector<Step> steps = split_path(std::string_view(text).substr(0, equals));
    if (steps.empty())
        throw Unreadable{{0, 1, set}, fmt::format("'{}' is no key path", text.substr(0, equals)), kHowToSet};
    if (steps.size() > kMostDepth)
        throw Unreadable{{0, 1, set}, "this key path is too long", kHowToSet};
    const std::string given = text.substr(equals + 1);
    if (given.find_first_not_of(' ') == std::string::npos && !steps.back().bracketed)
        return take_away(root, steps);
    YamlNode value = read_document(source, given, {set, static_cast<int>(equals) + 1});
    if (value.place.set == 0)
        value.place = {0, static_cast<int>(equals) + 2, set};
    walk(root, steps, {0, 1, set}) = std::move(value);
}

}  // namespace

YamlNode parse_tree(Source& source) {
    try {
        const bool marked = source.text().starts_with("\xEF\xBB\xBF");  // as some editors begin a file
        return read_document(source, marked ? source.text().substr(3) : source.text(), {});
    } catch (const Unreadable& mistake) {
        source.complain(mistake.place, mistake.fact, mistake.help);
        source.throw_if_mistaken();
        throw;
    }
}

void apply_overrides(Source& source, YamlNode& root, const std::vector<std::string>& overrides) {
    for (const std::string& text : overrides) {
        try {
            apply_override(source, root, text);
        } catch (const Unreadable& mistake) {
            source.complain(mistake.place, mistake.fact, mistake.help);
        }
    }
}

}  // namespace pw
