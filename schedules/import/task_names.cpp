#include "schedules/import/task_names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

// What the number after a word counts.
enum class WordKind { Op, Stage, MicroBatch, Chunk, Rank, Step, Total, Filler };

struct KnownWord {
    std::string_view word;
    WordKind kind;
    Op op = Op::Forward;
};
constexpr KnownWord kKnownWords[] = {
    {"f", WordKind::Op},
    {"fw", WordKind::Op},
    {"fwd", WordKind::Op},
    {"forward", WordKind::Op},
    {"b", WordKind::Op, Op::Backward},
    {"bw", WordKind::Op, Op::Backward},
    {"bwd", WordKind::Op, Op::Backward},
    {"backward", WordKind::Op, Op::Backward},
    {"i", WordKind::Op, Op::BackwardInput},
    {"dgrad", WordKind::Op, Op::BackwardInput},
    {"w", WordKind::Op, Op::BackwardWeight},
    {"wgrad", WordKind::Op, Op::BackwardWeight},
    {"r", WordKind::Op, Op::Recompute},
    {"recompute", WordKind::Op, Op::Recompute},
    {"stage", WordKind::Stage},
    {"pp", WordKind::Stage},
    {"s", WordKind::Stage},
    {"mb", WordKind::MicroBatch},
    {"microbatch", WordKind::MicroBatch},
    {"minibatch", WordKind::MicroBatch},
    {"batch", WordKind::MicroBatch},
    {"chunk", WordKind::Chunk},
    {"rank", WordKind::Rank},
    {"device", WordKind::Rank},
    {"gpu", WordKind::Rank},
    {"worker", WordKind::Rank},
    {"step", WordKind::Step},
    {"iteration", WordKind::Step},
    {"iter", WordKind::Step},
    {"of", WordKind::Total},
    {"pass", WordKind::Filler},
    {"compute", WordKind::Filler},
    {"micro", WordKind::Filler},
    {"mini", WordKind::Filler},
    {"model", WordKind::Filler},
    {"id", WordKind::Filler},
    {"index", WordKind::Filler},
    {"task", WordKind::Filler},
    {"for", WordKind::Filler},
};

const KnownWord* known_word(std::string_view word) {
    const auto row = std::find_if(std::begin(kKnownWords), std::end(kKnownWords),
                                  [&](const KnownWord& known) { return known.word == word; });
    return row == std::end(kKnownWords) ? nullptr : row;
}

struct Token {
    std::string word;  // empty: a number
    int number = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Returns the words, in lower case, and the numbers of a name. Returns nothing for a name that cannot be a task's.
std::vector<Token> tokens_of(std::string_view name) {
    constexpr std::size_t kLongest = 64;
    std::vector<Token> tokens;
    if (name.size() > kLongest)
        return tokens;
    for (std::size_t at = 0; at < name.size();) {
        Token token;
        if (is_digit(name[at])) {
            const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), token.number);
            if (error != std::errc() || token.number > kMostNumber)
                return {};
            at = static_cast<std::size_t>(end - name.data());
        } else if (is_letter(name[at])) {
            for (; at < name.size() && is_letter(name[at]); ++at)
                token.word += static_cast<char>(std::tolower(static_cast<unsigned char>(name[at])));
        } else {
            ++at;
            continue;
        }
        tokens.push_back(std::move(token));
    }
    return tokens;
}

// Reads a name from left to right. A number belongs to the word before it. A number before the operation belongs to it.
class NameReader {
public:
    explicit NameReader(std::string_view name) : tokens_(tokens_of(name)) {}

    NamedTask read() {
        for (at_ = 0; at_ < tokens_.size(); ++at_)
            if (tokens_[at_].word.empty() ? !take_number() : !take_word(tokens_[at_].word))
                return {};
        return named_.op && settle() ? named_ : NamedTask{};
    }

private:
    std::optional<int> next_number() {
        if (at_ + 1 == tokens_.size() || !tokens_[at_ + 1].word.empty())
            return {};
        return tokens_[++at_].number;
    }

    // A number after no word: "1" of "1F3".
    bool take_number() {
        const bool is_before_op = at_ + 1 < tokens_.size() && !named_.op;
        const KnownWord* const next = is_before_op ? known_word(tokens_[at_ + 1].word) : nullptr;
        if (next == nullptr || next->kind != WordKind::Op)
            return false;
        before_op_ = tokens_[at_].number;
        return true;
    }

    static bool set(std::optional<int>& value, std::optional<int> number) {
        const bool twice = value && number && *value != *number;
        value = number ? number : value;
        return !twice;
    }

    bool take_word(std::string_view word) {
        const KnownWord* const known = known_word(word);
        if (named_.op == Op::Backward && (word == "input" || word == "weight")) {
            named_.op = word == "input" ? Op::BackwardInput : Op::BackwardWeight;
            return set(after_op_, next_number());
        }
        if (known == nullptr)
            return false;
        const std::optional<int> number = next_number();
        switch (known->kind) {
            case WordKind::Op:
                return take_op(*known, number);
            case WordKind::Stage:
                return number && set(named_.stage, number);
            case WordKind::MicroBatch:
                return set(named_.microbatch, number);
            case WordKind::Chunk:
                return set(named_.chunk, number);
            case WordKind::Rank:
                return number && set(named_.rank, number);
            case WordKind::Step:
                return set(named_.op && !named_.microbatch && !after_op_ ? step_after_op_ : named_.step, number);
            case WordKind::Total:
                return true;
            case WordKind::Filler:
                break;
        }
        return !number || (named_.op && set(after_op_, number));
    }

    bool take_op(const KnownWord& known, std::optional<int> number) {
        if (named_.op)
            return false;
        named_.op = known.op;
        named_.is_word = known.word.size() > 1;
        return set(after_op_, number);
    }

    // Decides what the numbers next to the operation and the chunk count: the micro-batch, if no word names it.
    bool settle() {
        std::optional<int>* const by_itself[] = {&after_op_, &named_.chunk, &step_after_op_, &before_op_};
        for (std::optional<int>* const number : by_itself)
            if (!named_.microbatch && *number)
                std::swap(named_.microbatch, *number);
        return (!after_op_ || after_op_ == named_.microbatch) && set(named_.stage, before_op_) &&
               set(named_.step, step_after_op_);
    }

    const std::vector<Token> tokens_;
    std::size_t at_ = 0;
    NamedTask named_;
    std::optional<int> before_op_, after_op_, step_after_op_;
};

}  // namespace

NamedTask named_in(std::string_view name) { return NameReader(name).read(); }

std::optional<Op> op_of_word(std::string_view word) {
    const std::vector<Token> tokens = tokens_of(word);
    const KnownWord* const known = tokens.size() == 1 ? known_word(tokens.front().word) : nullptr;
    return known != nullptr && known->kind == WordKind::Op ? std::optional(known->op) : std::nullopt;
}

std::optional<Op> op_in(std::string_view text) {
    std::set<Op> words, letters;
    for (const Token& token : tokens_of(text)) {
        if (const std::optional<Op> op = op_of_word(token.word))
            (token.word.size() > 1 ? words : letters).insert(*op);
        if (words.contains(Op::Backward) && (token.word == "input" || token.word == "weight"))
            words = {token.word == "input" ? Op::BackwardInput : Op::BackwardWeight};
    }
    const std::set<Op>& named = words.empty() ? letters : words;
    return named.size() == 1 ? std::optional(*named.begin()) : std::nullopt;
}

std::string_view word_at(std::string_view text) {
    return text.substr(0, static_cast<std::size_t>(
                              std::distance(text.begin(), std::find_if_not(text.begin(), text.end(), is_letter))));
}

std::optional<int> only_number_in(std::string_view text) {
    const std::vector<Token> tokens = tokens_of(text);
    return tokens.size() == 1 && tokens.front().word.empty() ? std::optional(tokens.front().number) : std::nullopt;
}

}  // namespace pw
