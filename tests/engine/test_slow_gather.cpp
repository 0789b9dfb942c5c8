// Messages of several pieces arrive complete, for any order of calls and any set of urgent ranks.
#include "exec/ranks/slow_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <tuple>

namespace pw {

namespace {

// Ranks on one thread: a message is complete when both ends have been posted.
class Post {
public:
    struct Message {
        std::span<const std::byte> from;
        std::span<std::byte> to;
        bool is_sent = false, is_awaited = false;
        bool is_through() const { return is_sent && is_awaited; }
    };
    // Returns the n-th message of a tag between two ranks, for both ends.
    Message& message(int from, int to, int tag, std::size_t number) {
        std::deque<Message>& all = messages_[{from, to, tag}];
        if (all.size() <= number)
            all.resize(number + 1);
        return all[number];
    }

private:
    std::map<std::tuple<int, int, int>, std::deque<Message>> messages_;
};

class PostedRanks : public Ranks {
public:
    PostedRanks(Post& post, int own, int count) : post_(post), rank_(own), size_(count) {}
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    int largest_tag() const override { return 1000; }
    const std::string& version() const override { return version_; }

    Ticket send(int to, int tag, std::span<const std::byte> bytes, bool) override {
        Post::Message& message = post_.message(rank_, to, tag, numbers_[{to, tag}]++);
        message.from = bytes;
        message.is_sent = true;
        return opened(message);
    }
    Ticket receive(int from, int tag, std::span<std::byte> bytes) override {
        Post::Message& message = post_.message(from, rank_, tag, numbers_[{from, tag}]++);
        message.to = bytes;
        message.is_awaited = true;
        return opened(message);
    }
    bool done(Ticket ticket) override { return open_.at(static_cast<std::size_t>(ticket))->is_through(); }
    void progress() override {}
    void give_up() override {}

private:
    Ticket opened(Post::Message& message) {
        if (message.is_through()) {
            EXPECT_EQ(message.from.size(), message.to.size());
            std::ranges::copy(message.from, message.to.begin());
        }
        open_.push_back(&message);
        return static_cast<Ticket>(open_.size()) - 1;
    }

    Post& post_;
    const int rank_, size_;
    const std::string version_ = "a post";
    std::map<std::pair<int, int>, std::size_t> numbers_;
    std::deque<Post::Message*> open_;
};

Message message_of(int rank, std::size_t bytes) {
    Message message(bytes);
    std::mt19937 random(static_cast<unsigned>(rank));
    for (std::byte& byte : message)
        byte = static_cast<std::byte>(random());
    return message;
}

}  // namespace

TEST(SlowGather, DeliversCompleteMessages) {
    constexpr std::size_t kMebi = std::size_t{1} << 20;
    const std::vector<std::size_t> sizes = {7, 0, 1, kMebi, kMebi + 1, 3 * kMebi + 5, 0};
    const auto count = static_cast<int>(sizes.size());
    for (unsigned seed = 0; seed < 5; ++seed) {
        std::mt19937 random(seed);
        Post post;
        std::vector<std::unique_ptr<PostedRanks>> ranks;
        std::vector<std::unique_ptr<SlowGather>> gathers;
        for (int rank = 0; rank < count; ++rank) {
            ranks.push_back(std::make_unique<PostedRanks>(post, rank, count));
            gathers.push_back(std::make_unique<SlowGather>(*ranks.back(), message_of(rank, sizes[rank])));
        }
        std::vector<bool> over(sizes.size());
        while (std::ranges::find(over, false) != over.end())
            if (const std::size_t rank = random() % sizes.size(); !over[rank])
                over[rank] = gathers[rank]->advance(random() % 4 != 0);
        const std::vector<Message> messages = gathers[0]->take_messages();
        ASSERT_EQ(messages.size(), sizes.size());
        EXPECT_TRUE(messages[0].empty());
        for (int rank = 1; rank < count; ++rank)
            EXPECT_EQ(messages[rank], message_of(rank, sizes[rank])) << "rank " << rank << ", seed " << seed;
    }
}

TEST(SlowGather, IsDoneAtOnceForOneRank) {
    Post post;
    PostedRanks alone(post, 0, 1);
    SlowGather gather(alone, {});
    EXPECT_TRUE(gather.advance(false));
}

}  // namespace pw
