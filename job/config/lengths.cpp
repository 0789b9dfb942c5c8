// The length of each micro-batch, from a list in the config or from a CSV.
#include "job/config/blocks.h"
#include "workloads/text/files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <set>

namespace pw {
namespace {

constexpr double kShortest = 1e-6, kLongest = 1e6;
constexpr const char* kHowToWrite =
    "write a list with a number per micro-batch, such as [1, 0.5, 2], or {F: 1, B: 2}, or name a CSV";

// The lengths in an item of a list or a row; 0: not given.
struct Given {
    double all = 0, forward = 0, backward = 0, input = 0, weight = 0, bytes = 0;
};
struct Column {
    std::string_view name;
    double Given::*value;
};
constexpr Column kOperations[] = {{"F", &Given::forward},
                                  {"B", &Given::backward},
                                  {"I", &Given::input},
                                  {"W", &Given::weight},
                                  {"bytes", &Given::bytes}};
std::vector<std::string_view> names_of_operations() {
    std::vector<std::string_view> names;
    for (const Column& column : kOperations)
        names.push_back(column.name);
    return names;
}

constexpr Column kWhole[] = {{"factor", &Given::all}, {"tokens", &Given::all}};
constexpr std::string_view kNumber = "micro_batch", kTokens = "tokens";

double first_of(double own, double other) { return own > 0 ? own : other; }

// Lengths that are not given are those of the operation that includes them: W and I as B, B as F, F as the whole.
MicroBatchLength length_of(const Given& given) {
    const double forward = first_of(given.forward, given.all);
    const double backward = first_of(given.backward, forward);
    return {forward, first_of(given.input, backward), first_of(given.weight, backward),
            first_of(given.bytes, first_of(given.all, forward))};
}

MicroBatchLength read_length(const Yaml& at) {
    Given given;
    if (!at.is_map()) {
        given.all = at.number(1, kShortest, kLongest);
        return length_of(given);
    }
    at.allow(names_of_operations());
    for (const auto& [name, value] : kOperations)
        if (at[name].present())
            given.*value = at[name].number(1, kShortest, kLongest);
    if (!at["F"].present())
        at.complain(fmt::format("'{}' has no F", at.path()), "write {F: 1, B: 2}; B is as F if left out");
    return length_of(given);
}

struct Cell {
    std::string_view text;
    Place place;
};

std::vector<Cell> cells_of(std::string_view line, int number) {
    std::vector<Cell> cells;
    for (std::size_t begin = 0;;) {
        const std::size_t comma = line.find(',', begin), end = std::min(comma, line.size());
        std::string_view text = line.substr(begin, end - begin);
        const std::size_t blank = std::min(text.find_first_not_of(" \t"), text.size());
        text.remove_prefix(blank);
        while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
            text.remove_suffix(1);
        cells.push_back({text, {number, static_cast<int>(begin + blank) + 1}});
        if (comma == std::string_view::npos)
            return cells;
        begin = comma + 1;
    }
}

// A file with a header and a row per micro-batch, in any order.
class LengthsFile {
public:
    explicit LengthsFile(const std::string& path) : source_(path, read_text(path, kHowToWrite)) {}

    std::vector<MicroBatchLength> read() {
        int number = 0;
        for (std::string_view rest = source_.text(); !rest.empty();) {
            const std::size_t end = std::min(rest.find('\n'), rest.size());
            const std::string_view line = rest.substr(0, end);
            rest.remove_prefix(std::min(end + 1, rest.size()));
            ++number;
            const std::vector<Cell> cells = cells_of(line, number);
            if (cells.size() == 1 && cells.front().text.empty())
                continue;
            if (columns_.empty())
                read_header(cells);
            else
                read_row(cells);
        }
        if (given_.empty() && source_.clean())
            complain({1, 1}, "there are no lengths", "write micro_batch,tokens and a row for each micro-batch");
        source_.throw_if_mistaken();
        return lengths();
    }

private:
    void complain(Place place, const std::string& fact, const std::string& help) {
        source_.complain(place, fact, help);
    }

    void read_header(const std::vector<Cell>& cells) {
        std::set<std::string_view> names;
        for (const auto& [name, place] : cells) {
            double Given::*value = nullptr;
            const auto is_called = [&, &name = name](const Column& column) { return column.name == name; };
            if (const auto own = std::ranges::find_if(kOperations, is_called); own != std::end(kOperations))
                value = own->value;
            if (const auto whole = std::ranges::find_if(kWhole, is_called); whole != std::end(kWhole))
                value = whole->value;
            if (value == nullptr && name != kNumber)
                complain(place, fmt::format("there is no column '{}'", name),
                         fmt::format("columns are micro_batch; tokens or factor; {}",
                                     fmt::join(names_of_operations(), ", ")));
            else if (!names.insert(name).second)
                complain(place, fmt::format("two columns are called '{}'", name), "leave one of them out");
            columns_.push_back(value);
        }
        const bool whole = names.contains("factor") || names.contains(kTokens);
        in_tokens_ = names.contains(kTokens);
        if (!names.contains(kNumber) || (!whole && !names.contains("F")) || (names.contains("factor") && in_tokens_))
            complain(cells.front().place, "the first line must name micro_batch and one of tokens, factor and F",
                     "write micro_batch,tokens, or micro_batch,F,B");
    }

    void read_row(const std::vector<Cell>& cells) {
        if (cells.size() != columns_.size())
            return complain(
                cells.front().place,
                fmt::format("the row has {} cells, but the first line has {}", cells.size(), columns_.size()),
                "write one cell per column");
        Given given;
        for (std::size_t k = 0; k < cells.size(); ++k) {
            const auto& [text, place] = cells[k];
            double value = -1;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool read = error == std::errc{} && end == text.data() + text.size();
            if (columns_[k] == nullptr)
                read_number(read, value, cells[k]);
            else if (!read || !(value >= kShortest) || value > kMost)
                complain(place, fmt::format("'{}' is not a length", text),
                         "write a number above 0, such as 4096 or 1.5");
            else
                given.*columns_[k] = value;
        }
        given_.push_back(given);
    }

    void read_number(bool read, double value, const Cell& cell) {
        const auto number = static_cast<std::int64_t>(read && value >= 0 && value < kMostBatches ? value : -1);
        if (number < 0 || static_cast<double>(number) != value)
            complain(cell.place, fmt::format("'{}' is not the number of a micro-batch", cell.text),
                     "micro-batches are numbered from 0");
        else if (!seen_.insert(number).second)
            complain(cell.place, fmt::format("micro-batch {} has two rows", number), "leave one of them out");
        numbers_.push_back(number);
    }

    std::vector<MicroBatchLength> lengths() {
        double mean = 1;
        if (in_tokens_)
            mean = std::accumulate(given_.begin(), given_.end(), 0.0,
                                   [](double sum, const Given& given) { return sum + given.all; }) /
                   static_cast<double>(given_.size());
        std::vector<MicroBatchLength> lengths(given_.size());
        for (std::size_t row = 0; row < given_.size(); ++row) {
            Given& given = given_[row];
            given.all /= mean;
            const auto number = static_cast<std::size_t>(numbers_[row]);
            if (number >= lengths.size())
                complain({1, 1}, fmt::format("there are {} rows, but one is of micro-batch {}", lengths.size(), number),
                         fmt::format("write a row for each micro-batch from 0 to {}", lengths.size() - 1));
            else if (MicroBatchLength& length = lengths[number] = length_of(given); std::ranges::any_of(
                         std::array{length.forward, length.backward_input, length.backward_weight, length.bytes},
                         [](double part) { return part < kShortest || part > kLongest; }))
                complain(
                    {1, 1},
                    fmt::format("micro-batch {} is {:.4g} times as long as the mean; it may be {} to {} times as long",
                                number, length.forward, kShortest, kLongest),
                    "check the lengths");
            source_.throw_if_mistaken();
        }
        return lengths;
    }

    static constexpr double kMost = 1e15;
    Source source_;
    std::vector<double Given::*> columns_;  // null for the number of the micro-batch
    bool in_tokens_ = false;
    std::vector<Given> given_;           // by row
    std::vector<std::int64_t> numbers_;  // the micro-batch, by row
    std::set<std::int64_t> seen_;
};

}  // namespace

std::vector<MicroBatchLength> read_lengths_file(const std::string& path) { return LengthsFile(path).read(); }

std::vector<MicroBatchLength> read_lengths(const Yaml& at, KeyReading& reading) {
    if (at.is_text()) {
        const std::string path = reading.path_of(at.text());
        std::error_code error;
        if (std::filesystem::is_regular_file(path, error))
            return read_lengths_file(path);
        at.complain(fmt::format("there is no file '{}'", path), kHowToWrite);
        return {};
    }
    std::vector<MicroBatchLength> lengths;
    for (const Yaml& item : at.items())
        lengths.push_back(read_length(item));
    if (at.is_list() && lengths.empty())
        at.complain(fmt::format("'{}' is empty", at.path()), kHowToWrite);
    return lengths;
}

std::string lengths_schema() {
    const std::string one = fmt::format(R"({{"type": "number", "minimum": {}, "maximum": {}}})", kShortest, kLongest);
    return fmt::format(R"({{"anyOf": [{{"type": "string"}}, {{"type": "array", "minItems": 1, "items": {{"anyOf": [
        {0}, {{"type": "object", "required": ["F"], "propertyNames": {{"enum": ["{1}"]}},
        "additionalProperties": {0}}}]}}}}]}})",
                       one, fmt::join(names_of_operations(), R"(", ")"));
}

std::string print_lengths(const std::vector<MicroBatchLength>& lengths) {
    std::vector<std::string> texts;
    for (const auto& [forward, input, weight, bytes] : lengths)
        texts.push_back(forward == input && forward == weight && forward == bytes
                            ? fmt::format("{}", forward)
                            : fmt::format("{{F: {}, I: {}, W: {}, bytes: {}}}", forward, input, weight, bytes));
    return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace pw
