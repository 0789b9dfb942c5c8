#include "schedules/memory/packing_search.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace pw {

namespace {

struct Lying {
    Bytes offset, end;
    int last;
};

// A way to place the buffers so far: those that still live, by offset, and the last entry of its history.
struct Way {
    std::vector<Lying> lying;
    int latest = -1;
};

struct Entry {
    int before;  // the entry of the buffer before; -1 for the first
    Bytes offset;
};

// One more buffer in one of the ways.
struct Next {
    std::int64_t ragged;  // the sum over all neighbours of the time between their ends, after it
    int way;
    Bytes offset;
    std::uint64_t mark;  // equal ones are the same from here on
};

std::uint64_t mark_of(Bytes offset, int last) {
    const std::uint64_t mixed = static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15U ^
                                static_cast<std::uint64_t>(last) * 0xc2b2ae3d27d4eb4fU;
    return (mixed ^ mixed >> 29U) * 0xff51afd7ed558ccdU;
}

class PlaceSearch {
public:
    PlaceSearch(Bytes limit, int width) : limit_(limit), width_(static_cast<std::size_t>(width)), ways_(1) {}

    // Returns false when the buffer has no place in any way.
    bool place(const Living& buffer) {
        next_.clear();
        for (int way = 0; way < static_cast<int>(ways_.size()); ++way) {
            std::erase_if(ways_[way].lying, [&](const Lying& other) { return other.last < buffer.first; });
            add_places(way, buffer);
        }
        std::stable_sort(next_.begin(), next_.end(), [](const Next& a, const Next& b) { return a.ragged < b.ragged; });
        keep_best(buffer);
        return !ways_.empty();
    }

    std::vector<Bytes> offsets(std::size_t buffers) const {
        std::vector<Bytes> offsets(buffers);
        int entry = ways_.front().latest;
        for (std::size_t k = buffers; k-- > 0; entry = entries_[entry].before)
            offsets[k] = entries_[entry].offset;
        return offsets;
    }

private:
    // Both ends of every gap that holds the buffer. A gap counts as a neighbour that ends now, and what is below or
    // above all as one that always ends with its neighbour.
    void add_places(int way, const Living& buffer) {
        const std::vector<Lying>& lying = ways_[way].lying;
        const int life = buffer.last + 1 - buffer.first;
        const auto left = [&](std::size_t at) { return std::int64_t{lying[at].last + 1 - buffer.first}; };
        const auto first_of_way = static_cast<std::ptrdiff_t>(next_.size());
        std::int64_t ragged = 0;
        std::uint64_t mark = 0;
        Bytes top = 0;
        for (std::size_t at = 0; at <= lying.size(); ++at) {
            const bool floor = at == 0, ceiling = at == lying.size();
            const Bytes above = ceiling ? limit_ : lying[at].offset, gap = above - top;
            const std::int64_t lower = floor ? 0 : left(at - 1), upper = ceiling ? 0 : left(at);
            const std::int64_t to_lower = floor ? 0 : std::abs(life - lower),
                               to_upper = ceiling ? 0 : std::abs(life - upper);
            const std::int64_t now = gap > 0 ? lower + upper : floor || ceiling ? 0 : std::abs(lower - upper);
            if (gap > buffer.bytes) {
                next_.push_back({to_lower + life + upper - now, way, top, mark_of(top, buffer.last)});
                const Bytes high = above - buffer.bytes;
                next_.push_back({lower + life + to_upper - now, way, high, mark_of(high, buffer.last)});
            } else if (gap == buffer.bytes) {
                next_.push_back({to_lower + to_upper - now, way, top, mark_of(top, buffer.last)});
            }
            ragged += now;
            if (!ceiling) {
                mark += mark_of(lying[at].offset, lying[at].last);
                top = lying[at].end;
            }
        }
        for (auto next = next_.begin() + first_of_way; next != next_.end(); ++next) {
            next->ragged += ragged;
            next->mark += mark;
        }
    }

    void keep_best(const Living& buffer) {
        kept_.clear();
        std::vector<std::uint64_t> marks;
        for (const Next& next : next_) {
            if (kept_.size() == width_)
                break;
            if (std::find(marks.begin(), marks.end(), next.mark) != marks.end())
                continue;
            marks.push_back(next.mark);
            entries_.push_back({ways_[next.way].latest, next.offset});
            Way& way = kept_.emplace_back(ways_[next.way]);
            way.latest = static_cast<int>(entries_.size()) - 1;
            const auto above = std::find_if(way.lying.begin(), way.lying.end(),
                                            [&](const Lying& other) { return other.offset > next.offset; });
            way.lying.insert(above, {next.offset, next.offset + buffer.bytes, buffer.last});
        }
        std::swap(ways_, kept_);
    }

    Bytes limit_;
    std::size_t width_;
    std::vector<Way> ways_, kept_;
    std::vector<Next> next_;
    std::vector<Entry> entries_;
};

}  // namespace

std::vector<Bytes> places_below(const std::vector<Living>& buffers, Bytes limit, int width) {
    PlaceSearch search(limit, width);
    for (const Living& buffer : buffers)
        if (!search.place(buffer))
            return {};
    return search.offsets(buffers.size());
}

}  // namespace pw
