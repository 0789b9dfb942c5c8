// Chakra's binary execution traces (*.et), a file for each rank: messages of protocol buffers, each after its length.
// The first message is GlobalMetadata, the rest are nodes (et_def.proto of MLCommons Chakra 1.0.0). Nodes of messages,
// and nodes without a task's name, are left out. chakra_converter writes durations, but no starts: such files are
// refused.
#include "schedules/import/named_ranges.h"
#include "schedules/import/trace_form.h"
#include "schedules/import/wire_format.h"
#include "schedules/trace/trace_events.h"
#include "workloads/text/files.h"
#include "workloads/text/printable.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pw {

namespace {

constexpr const char* kBinaryNodes = "nodes with names such as PP:0F1 and with times (Chakra's binary traces, *.et)";
constexpr const char* kBinaryHelp =
    "name the JSON files that chakra_trace_link writes, which have times, or the files of torch.profiler";

namespace metadata {
enum Field : std::uint64_t { Version = 1, Attribute = 2 };
}
struct BinaryNode {
    enum Field : std::uint64_t { Name = 2, Type = 3, Start = 6, Duration = 7 };
    enum NodeType : std::uint64_t { Send = 5, Collective = 7 };  // and receives between them
    std::string_view name;
    std::uint64_t type = 0, start = 0, duration = 0;  // microseconds

    bool is_message() const { return type >= Send && type <= Collective; }
};

bool is_metadata(std::string_view message) {
    WireReader fields(message);
    while (!fields.at_end()) {
        const std::optional<WireField> field = fields.field();
        if (!field || field->kind != WireField::Kind::Text || field->field > metadata::Attribute)
            return false;
        if (field->field == metadata::Attribute) {
            const std::optional<WireField> name = WireReader(field->bytes).field();
            if (!name || name->field != 1 || name->kind != WireField::Kind::Text)
                return false;
        }
    }
    return !message.empty();
}

std::optional<BinaryNode> node_in(std::string_view message) {
    BinaryNode node;
    WireReader fields(message);
    while (!fields.at_end()) {
        const std::optional<WireField> field = fields.field();
        if (!field)
            return {};
        const bool is_number = field->field == BinaryNode::Type || field->field == BinaryNode::Start ||
                               field->field == BinaryNode::Duration;
        if ((is_number && field->kind != WireField::Kind::Number) ||
            (field->field == BinaryNode::Name && field->kind != WireField::Kind::Text))
            return {};
        if (field->field == BinaryNode::Name)
            node.name = field->bytes;
        else if (is_number)
            (field->field == BinaryNode::Type    ? node.type
             : field->field == BinaryNode::Start ? node.start
                                                 : node.duration) = field->value;
    }
    return node;
}

bool begins_as_binary_chakra(std::string_view beginning) {
    const std::optional<std::string_view> first = WireReader(beginning).bytes();
    return first && is_metadata(*first);
}

// The rank in the name of a file, NAME.RANK.et.
std::optional<int> rank_in(const std::string& path) {
    std::filesystem::path name = std::filesystem::path(path).filename();
    if (name.extension() == ".gz")
        name = name.stem();
    const std::string number = name.stem().extension().string();
    int rank = 0;
    if (name.extension() != ".et" || number.size() < 2)
        return {};
    const char* const end = number.data() + number.size();
    const auto [read, error] = std::from_chars(number.data() + 1, end, rank);
    return error == std::errc() && read == end && rank >= 0 ? std::optional(rank) : std::nullopt;
}

class BinaryChakraReader {
public:
    BinaryChakraReader(const std::vector<std::string>& paths, std::size_t file, TaskNames& names)
        : path_(paths[file]), file_(file), names_(names) {}

    void read(std::vector<NamedRange>& ranges) {
        const std::string text = read_text(path_, kBinaryHelp, kMostTrace);
        const std::size_t before = ranges.size();
        WireReader messages(text);
        for (std::size_t number = 0; !messages.at_end(); ++number) {
            const std::size_t at = messages.at();
            const std::optional<std::string_view> message = messages.bytes();
            if (!message)
                fail("trace '{}': byte {}: the file ends within a message\n  help: copy or write the file anew", path_,
                     at);
            const std::optional<BinaryNode> node = number == 0 ? std::nullopt : node_in(*message);
            if (number == 0 ? !is_metadata(*message) : !node)
                fail("trace '{}': byte {}: this message is no {} of Chakra's et_def.proto\n  help: {}", path_, at,
                     number == 0 ? "GlobalMetadata" : "Node", kBinaryHelp);
            if (node)
                take(*node, at, ranges);
        }
        if (ranges.size() == before)
            fail_without_tasks();
        if (!has_starts_)
            fail(
                "trace '{}': its nodes have durations, but no times at which they start, as chakra_converter writes "
                "them\n  help: {}",
                path_, kBinaryHelp);
    }

private:
    void take(const BinaryNode& node, std::size_t at, std::vector<NamedRange>& ranges) {
        has_starts_ = has_starts_ || node.start > 0;
        if (node.name.empty() || node.is_message())
            return;
        NamedTask task = names_.task_in(node.name);
        if (!task.is_task()) {
            if (constexpr int kMostSeen = 1000; seen_nodes_ < kMostSeen) {
                ++seen_nodes_;
                seen_.see({{"name", std::string(node.name)}});
            }
            return;
        }
        constexpr std::uint64_t kMostMicros = kMaxTime / 2 / 1000;
        if (node.start > kMostMicros || node.duration > kMostMicros)
            fail("trace '{}': byte {}: the node '{}' has a time of more than {} us\n  help: {}", path_, at,
                 shortened(node.name, 60), kMostMicros, kBinaryHelp);
        task.rank = rank_in(path_);
        const Ns start = static_cast<Ns>(node.start) * 1000, end = start + static_cast<Ns>(node.duration) * 1000;
        ranges.push_back({file_, number_as_text(file_), "", task, start, end});
    }

    [[noreturn]] void fail_without_tasks() const {
        names_.require_use(path_);
        fail("trace '{}': none of its nodes is a task of a pipeline: {}; {}\n  help: {}", path_, kBinaryNodes,
             seen_.print(), kBinaryHelp);
    }

    const std::string& path_;
    const std::size_t file_;
    TaskNames& names_;
    SeenNames seen_;
    int seen_nodes_ = 0;
    bool has_starts_ = false;
};

Trace read_binary_chakra(const std::vector<std::string>& paths, TaskNames& names, std::vector<std::string>& notes) {
    std::vector<NamedRange> ranges;
    for (std::size_t file = 0; file < paths.size(); ++file)
        BinaryChakraReader(paths, file, names).read(ranges);
    return trace_of_ranges(paths, std::move(ranges), notes);
}

}  // namespace

extern const TraceForm kChakraBinary{.tasks = kBinaryNodes,
                                     .of_one_rank = true,
                                     .names_tasks = true,
                                     .is_task = nullptr,
                                     .is_file = begins_as_binary_chakra,
                                     .read = read_binary_chakra};

}  // namespace pw
