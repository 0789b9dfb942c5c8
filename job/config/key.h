// A key of the config is a row: the key's name, values, member, when it is printed, and its meaning. The reader, the
// printer, the list of allowed keys, `list keys`, the JSON Schema and the tables of docs/config.md come from the rows.
// A new key needs a member in job/setup and a row in the table of its block.
#pragma once

#include "job/config/read.h"
#include "workloads/text/choice.h"
#include "workloads/text/yaml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw {

enum class KeyKind {
    Integer,
    Integers,
    Number,
    Numbers,
    Time,
    Size,
    Bandwidth,
    Rate,
    Choice,
    Flag,
    Text,
    Path,
    Special
};

// The values of a key. Bounds are included.
struct KeyDomain {
    KeyKind kind = KeyKind::Special;
    std::int64_t least = 0, most = 0;                    // of Integer, of each of Integers, of Time in ns
    double lowest = 0, highest = 0;                      // of Number, and of each of Numbers
    std::vector<std::string_view> (*names)() = nullptr;  // of Choice
    std::string_view takes = {}, schema = {};            // of Special: in words, and as JSON Schema
    std::string (*part)() = nullptr;                     // the schema that replaces the % in `schema`
    bool may_be_empty = false;                           // a key without a value counts as missing
    std::string_view no_list = {};                       // why a list of values has no meaning other than a sweep
};

// State that the readers of keys share.
struct KeyReading {
    std::string folder;  // paths are relative to it
    std::vector<StageClaim>& claims;
    std::vector<std::string> paths = {};  // the absolute paths of all files and folders that the config names

    // Returns the absolute path, and keeps it. An empty text is no path.
    std::string path_of(const std::string& text);
};

template <class Owner>
struct KeyValue {
    KeyDomain domain;
    // Null if the block reads the key together with others.
    void (*read)(const KeyDomain& domain, const Yaml& at, Owner& owner, KeyReading& reading) = nullptr;
    // Returns the value as YAML, on the key's line or on lines below the key. Empty if there is nothing to print.
    std::string (*print)(const Owner& owner) = nullptr;
    std::string* (*path)(Owner& owner) = nullptr;  // the member of a value that may be a path
};

enum class KeyShown { Always, IfSet };  // IfSet: if it is not the default

// What happens to a key in a config that the key is not for. Refused: the key is a mistake, and its value is read or
// not. Idle: the key has no effect (job/idle_keys.h), and is printed or not.
enum class Elsewhere { Refused, RefusedUnread, Idle, IdleUnprinted };
constexpr bool is_idle(Elsewhere elsewhere) {
    return elsewhere == Elsewhere::Idle || elsewhere == Elsewhere::IdleUnprinted;
}

// The configs that a key is for. All null: the key is for all configs.
template <class Owner>
struct KeyLimit {
    bool (*is_for)(const Owner& owner, std::string_view key) = nullptr;
    std::string (*words)(std::string_view key) = nullptr;  // "cuda"
    Elsewhere elsewhere = Elsewhere::Refused;
};

// The commands whose answers a key changes. Keys of runs and searches change no prediction, except `training.steps`,
// which is also the length of asynchronous plans. No note says that such a key is idle in another command, since a file
// serves all commands.
enum class KeyReader { OfBlock, All, Runs, Searches };

template <class Owner>
struct KeyOf {
    std::string_view name;
    KeyValue<Owner> value;
    KeyShown shown = KeyShown::Always;
    std::string_view fallback = {};  // the default in words, empty: the member's default
    std::string_view help = {};      // Markdown, with links from docs/, empty: the key is not in this version
    KeyLimit<Owner> limit = {};
    KeyReader reader = KeyReader::OfBlock;

    bool is_for(const Owner& owner) const { return limit.is_for == nullptr || limit.is_for(owner, name); }
};
using ConfigKey = KeyOf<Config>;

std::string schema_of(const KeyDomain& domain);

// Returns the properties of a schema: "name": {...}, "speed": {...}. Keys of later versions are left out.
template <class Owner>
std::string properties_schema(std::span<const KeyOf<Owner>> keys) {
    std::vector<std::string> properties;
    for (const KeyOf<Owner>& key : keys)
        if (const std::string schema = schema_of(key.value.domain); !schema.empty())
            properties.push_back(fmt::format(R"("{}": {})", key.name, schema));
    return fmt::format("{}", fmt::join(properties, ", "));
}

// Returns the schema of a map with these keys.
template <class Owner>
std::string object_schema(std::span<const KeyOf<Owner>> keys) {
    return fmt::format(R"({{"type": ["object", "null"], "properties": {{{}}}, "additionalProperties": false}})",
                       properties_schema(keys));
}
template <class Owner, const auto& keys>
std::string object_schema() {
    return object_schema<Owner>(keys);
}

// Returns a text as YAML on a single line: plain if YAML cannot read it as anything else, otherwise in JSON's quotes.
std::string quoted(const std::string& text);
std::string absolute_path(const std::string& folder, const std::string& path);

template <class Owner>
std::vector<std::string_view> names_of_keys(std::span<const KeyOf<Owner>> keys) {
    std::vector<std::string_view> names;
    for (const KeyOf<Owner>& key : keys)
        names.push_back(key.name);
    return names;
}

// Refuses several values of a key that takes a single value: notes the mistake, its reason, and that a sweep takes
// several values. Returns whether the key has several values.
bool refuse_several(const Yaml& at, std::string_view why = {});

// Returns whether a key of this kind takes a single value.
constexpr bool is_single(KeyKind kind) {
    return kind != KeyKind::Integers && kind != KeyKind::Numbers && kind != KeyKind::Special;
}

// Reads the keys of a map, and notes a mistake for every other key in it.
template <class Owner>
void read_keys(std::span<const KeyOf<Owner>> keys, const Yaml& at, Owner& owner, KeyReading& reading,
               std::span<const OtherName> others = {}) {
    at.allow(names_of_keys(keys), others);
    for (const KeyOf<Owner>& key : keys) {
        const Yaml own = at[key.name];
        const KeyDomain& domain = key.value.domain;
        if (key.value.read != nullptr && (key.limit.elsewhere != Elsewhere::RefusedUnread || key.is_for(owner)) &&
            (own.present() || !domain.may_be_empty) &&
            !(std::is_same_v<Owner, Config> && is_single(domain.kind) && refuse_several(own, domain.no_list)))
            key.value.read(domain, own, owner, reading);
    }
}

// Calls visit(name, text) for every key of a printed config. `usual` has the defaults.
template <class Owner, class Visit>
void print_keys(std::span<const KeyOf<Owner>> keys, const Owner& owner, const Owner& usual, Visit visit) {
    for (const KeyOf<Owner>& key : keys) {
        if (key.value.print == nullptr || (key.limit.elsewhere != Elsewhere::Idle && !key.is_for(owner)))
            continue;
        const std::string text = key.value.print(owner);
        if (!text.empty() && (key.shown == KeyShown::Always || text != key.value.print(usual)))
            visit(key.name, text);
    }
}

// Prints a map on one line: "{name: a, speed: 2}".
template <class Owner>
std::string print_map(std::span<const KeyOf<Owner>> keys, const Owner& owner, const Owner& usual) {
    std::vector<std::string> texts;
    print_keys(keys, owner, usual, [&](std::string_view name, const std::string& text) {
        texts.push_back(fmt::format("{}: {}", name, text));
    });
    return fmt::format("{{{}}}", fmt::join(texts, ", "));
}

// Prints a list on one line.
template <class T, class Print>
std::string print_list(const std::vector<T>& values, Print print) {
    std::vector<std::string> texts;
    for (const T& value : values)
        texts.push_back(print(value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
}

// Returns the member that a chain of pointers to members leads to.
template <auto first, auto... rest>
constexpr auto& member_of(auto& owner) {
    if constexpr (sizeof...(rest) == 0)
        return owner.*first;
    else
        return member_of<rest...>(owner.*first);
}

// What a config inherits is a member of the config.
template <class Owner, class Member>
std::conditional_t<std::is_base_of_v<Owner, Config>, Config, Owner> owner_of(Member Owner::*);

// The types of the struct in which a chain of pointers to members begins, and of the member at its end.
template <auto first, auto... rest>
struct MemberChain {
    using Owner = decltype(owner_of(first));
    using Member = std::remove_reference_t<decltype(member_of<first, rest...>(std::declval<Owner&>()))>;
};

template <class T>
struct WithoutOptional {
    using Type = T;
};
template <class T>
struct WithoutOptional<std::optional<T>> {
    using Type = T;
};

// Makes the value of a key from functions that read and print a value. The member may be optional.
template <auto read_one, auto print_one, auto... members>
constexpr KeyValue<typename MemberChain<members...>::Owner> key_value(KeyDomain domain) {
    using Owner = typename MemberChain<members...>::Owner;
    using Member = typename MemberChain<members...>::Member;
    using Value = typename WithoutOptional<Member>::Type;
    constexpr bool is_optional = !std::is_same_v<Member, Value>;
    domain.may_be_empty = is_optional;
    return {domain,
            [](const KeyDomain& own, const Yaml& at, Owner& owner, KeyReading&) {
                Member& member = member_of<members...>(owner);
                if constexpr (is_optional)
                    member = static_cast<Value>(read_one(own, at, Value{}));
                else
                    member = static_cast<Value>(read_one(own, at, member));
            },
            [](const Owner& owner) -> std::string {
                const auto& member = member_of<members...>(owner);
                if constexpr (is_optional)
                    return member ? print_one(*member) : std::string();
                else
                    return print_one(member);
            }};
}

inline std::int64_t read_integer(const KeyDomain& domain, const Yaml& at, std::int64_t fallback) {
    return at.integer(fallback, domain.least, domain.most);
}
inline double read_number(const KeyDomain& domain, const Yaml& at, double fallback) {
    return at.number(fallback, domain.lowest, domain.highest);
}
inline Ns read_duration(const KeyDomain& domain, const Yaml& at, Ns fallback) {
    return read_time(at, fallback, domain.least);
}
inline Bytes read_bytes(const KeyDomain&, const Yaml& at, Bytes fallback) { return at.bytes(fallback); }
inline double read_bandwidth(const KeyDomain&, const Yaml& at, double fallback) { return at.bandwidth(fallback); }
inline double read_flops(const KeyDomain&, const Yaml& at, double fallback) { return at.flops(fallback); }
inline bool read_flag(const KeyDomain&, const Yaml& at, bool fallback) { return at.boolean(fallback); }
inline std::string read_string(const KeyDomain&, const Yaml& at, const std::string& fallback) {
    return at.text(fallback);
}
template <auto read_one, class T>
std::vector<T> read_items(const KeyDomain& domain, const Yaml& at, const std::vector<T>& fallback) {
    if (!at.present())
        return fallback;
    std::vector<T> values;
    for (const Yaml& item : at.items())
        values.push_back(static_cast<T>(read_one(domain, item, static_cast<T>(0))));
    return values;
}

template <class T>
std::string print_plain(const T& value) {
    return fmt::format("{}", value);
}
template <class T>
std::string print_items(const std::vector<T>& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
}

template <auto... members>
constexpr auto integer_key(std::int64_t least, std::int64_t most) {
    using Integer = typename WithoutOptional<typename MemberChain<members...>::Member>::Type;
    return key_value<read_integer, print_plain<Integer>, members...>(
        {.kind = KeyKind::Integer, .least = least, .most = most});
}
template <auto... members>
constexpr auto integers_key(std::int64_t least, std::int64_t most) {
    return key_value<read_items<read_integer, int>, print_items<int>, members...>(
        {.kind = KeyKind::Integers, .least = least, .most = most});
}
template <auto... members>
constexpr auto number_key(double lowest, double highest) {
    return key_value<read_number, print_plain<double>, members...>(
        {.kind = KeyKind::Number, .lowest = lowest, .highest = highest});
}
template <auto... members>
constexpr auto numbers_key(double lowest, double highest) {
    return key_value<read_items<read_number, double>, print_items<double>, members...>(
        {.kind = KeyKind::Numbers, .lowest = lowest, .highest = highest});
}
template <auto... members>
constexpr auto time_key(Ns least = 0) {
    return key_value<read_duration, exact_time, members...>(
        {.kind = KeyKind::Time, .least = least, .most = kLongestTime});
}
template <auto... members>
constexpr auto size_key() {
    return key_value<read_bytes, exact_bytes, members...>({.kind = KeyKind::Size});
}
template <auto... members>
constexpr auto bandwidth_key() {
    return key_value<read_bandwidth, exact_bandwidth, members...>({.kind = KeyKind::Bandwidth});
}
template <auto... members>
constexpr auto rate_key() {
    return key_value<read_flops, exact_flops, members...>({.kind = KeyKind::Rate});
}
template <auto... members>
constexpr auto flag_key() {
    return key_value<read_flag, print_plain<bool>, members...>({.kind = KeyKind::Flag});
}
template <auto... members>
constexpr auto text_key() {
    return key_value<read_string, quoted, members...>({.kind = KeyKind::Text});
}

// The path of a file or a folder.
template <auto... members>
constexpr auto path_key() {
    using Owner = typename MemberChain<members...>::Owner;
    auto value = text_key<members...>();
    value.domain.kind = KeyKind::Path;
    value.read = [](const KeyDomain&, const Yaml& at, Owner& owner, KeyReading& reading) {
        member_of<members...>(owner) = reading.path_of(at.text());
    };
    value.path = [](Owner& owner) { return &member_of<members...>(owner); };
    return value;
}

// A closed choice (workloads/text/choice.h).
template <auto... members>
constexpr auto choice_key() {
    using Owner = typename MemberChain<members...>::Owner;
    using Enum = typename WithoutOptional<typename MemberChain<members...>::Member>::Type;
    constexpr bool is_optional = !std::is_same_v<Enum, typename MemberChain<members...>::Member>;
    return KeyValue<Owner>{{.kind = KeyKind::Choice, .names = names_of<Enum>},
                           [](const KeyDomain&, const Yaml& at, Owner& owner, KeyReading&) {
                               auto& member = member_of<members...>(owner);
                               if constexpr (is_optional)
                                   member = at.choice<Enum>();
                               else
                                   member = at.choice(member);
                           },
                           [](const Owner& owner) -> std::string {
                               const auto& member = member_of<members...>(owner);
                               if constexpr (is_optional)
                                   return std::string(member ? name_of(*member) : "");
                               else
                                   return std::string(name_of(member));
                           }};
}

constexpr KeyDomain special(std::string_view takes, std::string_view schema, std::string (*part)() = nullptr) {
    return {.takes = takes, .schema = schema, .part = part};
}

// Allows a key without a value, which counts as missing.
template <class Owner>
constexpr KeyValue<Owner> if_given(KeyValue<Owner> value) {
    value.domain.may_be_empty = true;
    return value;
}

// Replaces the function that prints the value.
template <class Owner>
constexpr KeyValue<Owner> printed_as(KeyValue<Owner> value, std::string (*print)(const Owner&)) {
    value.print = print;
    return value;
}

}  // namespace pw
