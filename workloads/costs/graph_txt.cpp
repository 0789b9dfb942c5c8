// PipeDream's graph.txt. Nodes, then edges after a tab, in any order of nodes:
//
//     node1 -- Conv2d(3, 64) -- forward_compute_time=1.5, backward_compute_time=2.5, activation_size=64.0, ...
//     	node1 -- node2
#include "workloads/costs/profiled_layers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <queue>

namespace pw {
namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr std::string_view kFirstKey = "forward_compute_time=";
constexpr const char* kNodeForm =
    "a node is `node1 -- description -- forward_compute_time=1.5, backward_compute_time=2.5, activation_size=64.0, "
    "parameter_size=0.0`, an edge is a tab and `node1 -- node2`";

struct Node {
    std::int64_t number = 0;
    int line = 0;
    PassTimes times;
    LayerBytes bytes;
    bool data_source = false, dropped_when_unread = false;
    std::vector<int> inputs, readers;
};

// A line, read from left to right. The first mistake is noted and ends the line.
class Line {
public:
    Line(Source& source, std::string_view text, int number) : source_(source), text_(text), number_(number) {}

    bool good() const { return good_; }
    bool at_end() const { return at_ == text_.size(); }
    void complain(const std::string& fact, const std::string& help) {
        if (good_)
            source_.complain({number_, static_cast<int>(at_) + 1}, fact, help);
        good_ = false;
    }
    bool skip(std::string_view text) {
        if (!good_ || text_.substr(at_).substr(0, text.size()) != text)
            return false;
        at_ += text.size();
        return true;
    }
    void expect(std::string_view text) {
        if (!skip(text))
            complain(fmt::format("'{}' is missing here", text), kNodeForm);
    }
    // Reads up to the position where `text` begins.
    std::string_view up_to(std::string_view text) {
        const std::size_t end = text_.find(text, at_);
        if (end == text_.npos)
            complain(fmt::format("'{}' is missing after this", text), kNodeForm);
        if (!good_)
            return {};
        const std::string_view found = text_.substr(at_, end - at_);
        at_ = end;
        return found;
    }
    std::int64_t node_number() {
        expect("node");
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(rest(), text_.data() + text_.size(), number);
        if (error != std::errc() || number < 0 || (*rest() == '0' && end - rest() > 1))
            complain("a node is called node and a number", kNodeForm);
        advance(end);
        return number;
    }
    double amount(double most) {
        double value = 0;
        const auto [end, error] = std::from_chars(rest(), text_.data() + text_.size(), value, std::chars_format::fixed);
        if (error != std::errc() || !std::isfinite(value))
            complain("this is no number", "write digits, as in 12.5");
        else if (value < 0 || value > most)
            complain(fmt::format("{} is out of range", value), fmt::format("it must be from 0 to {:g}", most));
        advance(end);
        return value;
    }

private:
    const char* rest() const { return text_.data() + at_; }
    void advance(const char* end) {
        if (good_)
            at_ = static_cast<std::size_t>(end - text_.data());
    }

    Source& source_;
    std::string_view text_;
    int number_;
    std::size_t at_ = 0;
    bool good_ = true;
};

Ns read_milliseconds(Line& line) { return std::llround(line.amount(kLongestLayer / 1e6) * 1e6); }
Bytes read_size(Line& line) { return std::llround(line.amount(static_cast<double>(kLargestLayer))); }

// Reads the size of one tensor, or the sizes of several: [64.0; 32.0].
Bytes read_sizes(Line& line) {
    if (!line.skip("["))
        return read_size(line);
    Bytes sum = 0;
    do
        sum += read_size(line);
    while (line.skip("; ") || line.skip(";"));
    line.expect("]");
    return std::min(sum, kLargestLayer);
}

Node read_node(Line& line, int number) {
    Node node;
    node.line = number;
    node.number = line.node_number();
    line.expect(kSeparator);
    const std::string_view description = line.up_to(fmt::format("{}{}", kSeparator, kFirstKey));
    node.data_source = description.starts_with("Input");
    node.dropped_when_unread = description.starts_with("__getitem__");
    line.expect(kSeparator);
    line.expect(kFirstKey);
    node.times.forward = read_milliseconds(line);
    line.expect(", backward_compute_time=");
    node.times.backward = read_milliseconds(line);
    line.expect(", activation_size=");
    node.bytes.output = read_sizes(line);
    line.expect(", parameter_size=");
    node.bytes.weights = read_size(line);
    if (line.skip(" -- stage_id="))  // of another partitioner's answer
        line.amount(1e9);
    if (line.good() && !line.at_end())
        line.complain("nothing is expected after this", kNodeForm);
    if (node.data_source)
        node.times = {}, node.bytes = {};
    share_backward(node.times, node.bytes.weights);
    return node;
}

struct TextEdge {
    std::int64_t from, to;
    int line;
};

TextEdge read_edge(Line& line, int number) {
    TextEdge edge{0, 0, number};
    edge.from = line.node_number();
    line.expect(kSeparator);
    edge.to = line.node_number();
    if (line.good() && !line.at_end())
        line.complain("nothing is expected after this", kNodeForm);
    return edge;
}

class GraphReader {
public:
    explicit GraphReader(Source& source) : source_(source) {}

    std::vector<Node> read() {
        read_lines();
        if (nodes_.empty() && source_.clean())
            source_.complain({1, 1}, "the file has no nodes", kNodeForm);
        source_.throw_if_mistaken();
        std::sort(nodes_.begin(), nodes_.end(), [](const Node& a, const Node& b) { return a.number < b.number; });
        for (std::size_t i = 1; i < nodes_.size(); ++i)
            if (nodes_[i].number == nodes_[i - 1].number)
                source_.complain({std::max(nodes_[i].line, nodes_[i - 1].line), 1},
                                 fmt::format("node{} is listed twice", nodes_[i].number),
                                 "give every node its own number");
        for (const TextEdge& edge : edges_)
            connect(edge);
        source_.throw_if_mistaken();
        return std::move(nodes_);
    }

private:
    void read_lines() {
        const std::string_view text = source_.text();
        int number = 0;
        for (std::size_t start = 0; start < text.size(); ++number) {
            const std::size_t end = std::min(text.find('\n', start), text.size());
            std::string_view line = text.substr(start, end - start);
            if (line.ends_with('\r'))
                line.remove_suffix(1);
            start = end + 1;
            read_line(line, number + 1);
        }
    }

    void read_line(std::string_view text, int number) {
        Line line(source_, text, number);
        if (text.empty())
            return;
        if (line.skip("\t")) {
            edges_.push_back(read_edge(line, number));
            return;
        }
        if (nodes_.size() == kMostLayers)
            line.complain(fmt::format("more than {} nodes", kMostLayers), "join layers");
        nodes_.push_back(read_node(line, number));
    }

    int find(std::int64_t number, int line) {
        const auto found = std::lower_bound(nodes_.begin(), nodes_.end(), number,
                                            [](const Node& node, std::int64_t wanted) { return node.number < wanted; });
        if (found != nodes_.end() && found->number == number)
            return static_cast<int>(found - nodes_.begin());
        source_.complain({line, 2}, fmt::format("the file has no node{}", number), "add its line, or remove this edge");
        return -1;
    }

    void connect(const TextEdge& edge) {
        const int from = find(edge.from, edge.line), to = find(edge.to, edge.line);
        if (from < 0 || to < 0)
            return;
        std::vector<int>& inputs = nodes_[to].inputs;
        if (std::find(inputs.begin(), inputs.end(), from) != inputs.end()) {
            source_.complain({edge.line, 2}, fmt::format("node{} reads node{} twice", edge.to, edge.from),
                             "remove one of the edges");
            return;
        }
        inputs.push_back(from);
        nodes_[from].readers.push_back(to);
    }

    Source& source_;
    std::vector<Node> nodes_;
    std::vector<TextEdge> edges_;
};

// Indices of the nodes, each after its inputs, the smallest first among the ready nodes. Shorter if the rest depends on
// a cycle.
std::vector<int> forward_order(const std::vector<Node>& nodes) {
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        missing.push_back(nodes[i].inputs.size());
        if (missing[i] == 0)
            ready.push(static_cast<int>(i));
    }
    std::vector<int> order;
    while (!ready.empty()) {
        order.push_back(ready.top());
        ready.pop();
        for (const int reader : nodes[order.back()].readers)
            if (--missing[reader] == 0)
                ready.push(reader);
    }
    return order;
}

void refuse_cycle(Source& source, const std::vector<Node>& nodes, const std::vector<int>& order) {
    if (order.size() == nodes.size())
        return;
    std::vector<bool> placed(nodes.size(), false);
    for (const int node : order)
        placed[node] = true;
    const auto stuck = std::find(placed.begin(), placed.end(), false) - placed.begin();
    source.complain({nodes[stuck].line, 1}, fmt::format("node{} is in a cycle, or after one", nodes[stuck].number),
                    "remove an edge: a layer cannot read what is computed from its own output");
    source.throw_if_mistaken();
}

}  // namespace

ProfiledModel read_graph_txt(std::shared_ptr<Source> source, int samples) {
    const std::vector<Node> nodes = GraphReader(*source).read();
    const std::vector<int> order = forward_order(nodes);
    refuse_cycle(*source, nodes, order);
    ProfiledModel result = empty_profiled_model(source->name());
    result.says_samples = false;
    std::vector<int> layer_of(nodes.size(), -1);
    for (const int index : order) {
        const Node& node = nodes[index];
        if (node.dropped_when_unread && node.readers.empty())
            continue;
        std::vector<int> inputs;
        for (const int input : node.inputs)
            inputs.push_back(layer_of[input]);
        layer_of[index] = static_cast<int>(result.profile.layers.size());
        add_profiled_layer(result, fmt::format("node{}", node.number), inputs, {{samples, node.times}}, node.bytes,
                           samples);
    }
    if (result.profile.layers.empty())
        source->complain({1, 1}, "the file has no layers but sinks", kNodeForm);
    source->throw_if_mistaken();
    return result;
}

}  // namespace pw
