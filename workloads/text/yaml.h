// The only reader of YAML (and JSON, which is YAML). It is strict: on top of yaml-cpp, it rejects repeated keys,
// further documents, cyclic aliases, unknown keys and numbers without a unit, and collects every mistake of a file
// before it throws.
#pragma once

#include "workloads/error.h"
#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

struct Place {
    int line = 0;    // from 1, 0 when not from the file (a --set or a default)
    int column = 0;  // from 1, in bytes
    int set = 0;     // from 1: the n-th --set, and `column` counts in its text, 0 for none
};

// A source is a file's text and the mistakes found in the text so far. All readers of the text share the source.
class Source {
public:
    Source(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {}
    const std::string& name() const { return name_; }
    const std::string& text() const { return text_; }

    int add_override(std::string text);  // returns its Place::set
    // `key` is the key of the config if the file is a config.
    void complain(Place place, const std::string& fact, const std::string& help, const std::string& key = "");
    bool clean() const { return mistakes_.empty(); }
    bool is_mistaken(const std::string& block) const;  // whether a key of the block has a mistake
    // Throws Error (BadInput) with every mistake, in the order of the file, at most 20. The fields of the Error
    // describe the first mistake:
    //   error: stage 2 gets no layer
    //    --> cfg.yaml:14:13
    //      |
    //   14 |   split: [layer3.0, layer3.0]
    //      |                     ^
    //     help: ...
    void throw_if_mistaken() const;

private:
    struct Mistake {
        Place place;
        std::string fact, help, key;
    };
    std::string print(Place place) const;  // of an override its key
    std::string print(const Mistake& mistake) const;
    std::string excerpt(Place place) const;

    std::string name_, text_;
    std::vector<std::string> overrides_;
    std::vector<Mistake> mistakes_;
};

// A node is a value of a document, with aliases expanded. Scalars are text, and the reader decides their meaning.
struct YamlNode {
    enum class Kind { Null, Text, List, Map } kind = Kind::Null;
    struct Key {
        std::string name;
        Place place;
    };
    Place place;
    std::string text;
    std::vector<Key> keys;        // keys of a map, in the order of the file
    std::vector<YamlNode> items;  // items of a list, or the values of a map, by key
};

// The name of a key elsewhere, and the key here: "pipeline.micro_batches". Or a name in the block `key` whose value
// follows from other keys, as `follows` says.
struct OtherName {
    std::string_view name, key, follows = {};
};

// A cursor on a value of the document. Reading a wrong type notes a mistake and returns the fallback, so that a single
// pass finds all mistakes.
class Yaml {
public:
    // Both read a document. `set` has "key.path=value" overrides, which are applied before anything is read.
    static Yaml parse(std::shared_ptr<Source> source, const std::vector<std::string>& set = {});
    static Yaml load(const std::string& path, const std::vector<std::string>& set = {});
    static Yaml of(std::shared_ptr<Source> source, YamlNode root);  // a tree that was made of another format

    bool present() const { return node_ && node_->kind != YamlNode::Kind::Null; }
    bool is_list() const { return node_ && node_->kind == YamlNode::Kind::List; }
    bool is_map() const { return node_ && node_->kind == YamlNode::Kind::Map; }
    bool is_text() const { return node_ && node_->kind == YamlNode::Kind::Text; }

    // Returns the value under `key`, an absent value when missing.
    Yaml operator[](std::string_view key) const;
    std::vector<Yaml> items() const;                            // items of a list, a mistake otherwise
    std::vector<std::pair<std::string, Yaml>> entries() const;  // keys and values of a map
    // Notes a mistake for every key that is not allowed, with its name here or the nearest allowed key.
    void allow(const std::vector<std::string_view>& known, std::span<const OtherName> others = {}) const;

    std::string text(std::string_view fallback = "") const;
    std::int64_t integer(std::int64_t fallback, std::int64_t least, std::int64_t most) const;
    double number(double fallback, double least, double most) const;
    bool boolean(bool fallback) const;
    Ns time(Ns fallback) const;
    Bytes bytes(Bytes fallback) const;
    double bandwidth(double fallback) const;
    double flops(double fallback) const;
    // Reads one of `choices`. A mistake lists the choices.
    std::string choice(std::string_view fallback, const std::vector<std::string_view>& choices) const;
    // Reads a value of a closed choice, by the names in its table. Returns nothing when absent or mistaken.
    template <class E>
    std::optional<E> choice() const {
        return parse_choice<E>(choice("", names_of<E>()));
    }
    template <class E>
    E choice(E fallback) const {
        return choice<E>().value_or(fallback);
    }

    Place place() const;
    const std::string& path() const { return path_; }  // "pipeline.split[1]"
    void complain(const std::string& fact, const std::string& help) const;
    Source& source() const { return *source_; }
    std::shared_ptr<Source> shared_source() const { return source_; }

private:
    Yaml(std::shared_ptr<Source> source, std::shared_ptr<const YamlNode> node, std::string path, Place parent)
        : source_(std::move(source)), node_(std::move(node)), path_(std::move(path)), parent_(parent) {}
    Yaml child(const YamlNode& node, std::string path) const;
    const std::string* scalar(std::string_view wanted) const;
    template <class T, class Parse>
    T quantity(T fallback, Parse read, std::string (*meant)(std::string_view), std::string_view wanted,
               std::string_view example) const;

    std::shared_ptr<Source> source_;
    std::shared_ptr<const YamlNode> node_;  // null when the value is absent
    std::string path_;
    Place parent_;  // where to point when the value is absent
};

// Returns a text in double quotes, with the escapes that YAML and JSON share.
std::string yaml_text(const std::string& text);

inline constexpr Ns kLongestTime = 1'000'000'000'000'000;  // 11 days: sums of times stay far from overflow

// Reads a time of at least `least` and at most kLongestTime, a mistake otherwise.
Ns read_time(const Yaml& at, Ns fallback, Ns least = 0);

// Returns the candidate with the smallest edit distance (two swapped letters are one edit), if it is close enough to be
// a typing mistake.
std::optional<std::string_view> nearest(std::string_view word, const std::vector<std::string_view>& candidates);
// Returns the choice that a wrong value means: by another word for it ("bfloat16", "True"), by other letters, or the
// nearest choice. Empty if there is none.
std::string_view meant_by(std::string_view word, const std::vector<std::string_view>& choices);

}  // namespace pw
