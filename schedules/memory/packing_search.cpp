#include "schedules/memory/packing_search.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace pw {

namespace {

struct LiveBuffer {
    Bytes offset, end;
    int last;
};

// A packing of the buffers so far: the buffers that still live, by offset, and the last entry of its history.
struct Partial {
    std::vector<LiveBuffer> live;
    int latest = -1;
};

struct Entry {
    int before;  // the entry of the previous buffer; -1 for the first
    Bytes offset;
};

// A further buffer in one of the partial packings.
struct Candidate {
    std::int64_t ragged;  // then the sum, over all neighbours, of the time between their ends
    int partial;
    Bytes offset;
    std::uint64_t mark;  // candidates with equal marks continue in the same way
};

std::uint64_t mark_of(Bytes offset, int last) {
    const std::uint64_t mixed = static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15U ^
                                static_cast<std::uint64_t>(last) * 0xc2b2ae3d27d4eb4fU;
    return (mixed ^ mixed >> 29U) * 0xff51afd7ed558ccdU;
}

class PackingSearch {
public:
    PackingSearch(Bytes limit, int width) : limit_(limit), width_(static_cast<std::size_t>(width)), partials_(1) {}

    // Returns false if the buffer fits into none of the partial packings.
    bool place(const LiveRange& buffer) {
        next_.clear();
        for (int partial = 0; partial < static_cast<int>(partials_.size()); ++partial) {
            std::erase_if(partials_[partial].live, [&](const LiveBuffer& other) { return other.last < buffer.first; });
            add_candidates(partial, buffer);
        }
        std::stable_sort(next_.begin(), next_.end(),
                         [](const Candidate& a, const Candidate& b) { return a.ragged < b.ragged; });
        keep_best(buffer);
        return !partials_.empty();
    }

    std::vector<Bytes> offsets(std::size_t buffers) const {
        std::vector<Bytes> offsets(buffers);
        int entry = partials_.front().latest;
        for (std::size_t k = buffers; k-- > 0; entry = entries_[entry].before)
            offsets[k] = entries_[entry].offset;
        return offsets;
    }

private:
    // Adds both ends of every gap that holds the buffer. A gap counts as a neighbour that ends now. The space below the
    // lowest and above the highest buffer counts as a neighbour that ends with the buffer next to it.
    void add_candidates(int partial, const LiveRange& buffer) {
        const std::vector<LiveBuffer>& live = partials_[partial].live;
        const int life = buffer.last + 1 - buffer.first;
        const auto left = [&](std::size_t at) { return std::int64_t{live[at].last + 1 - buffer.first}; };
        const auto first_of_partial = static_cast<std::ptrdiff_t>(next_.size());
        std::int64_t ragged = 0;
        std::uint64_t mark = 0;
        Bytes top = 0;
        for (std::size_t at = 0; at <= live.size(); ++at) {
            const bool floor = at == 0, ceiling = at == live.size();
            const Bytes above = ceiling ? limit_ : live[at].offset, gap = above - top;
            const std::int64_t lower = floor ? 0 : left(at - 1), upper = ceiling ? 0 : left(at);
            const std::int64_t to_lower = floor ? 0 : std::abs(life - lower),
                               to_upper = ceiling ? 0 : std::abs(life - upper);
            const std::int64_t now = gap > 0 ? lower + upper : floor || ceiling ? 0 : std::abs(lower - upper);
            if (gap > buffer.bytes) {
                next_.push_back({to_lower + life + upper - now, partial, top, mark_of(top, buffer.last)});
                const Bytes high = above - buffer.bytes;
                next_.push_back({lower + life + to_upper - now, partial, high, mark_of(high, buffer.last)});
            } else if (gap == buffer.bytes) {
                next_.push_back({to_lower + to_upper - now, partial, top, mark_of(top, buffer.last)});
            }
            ragged += now;
            if (!ceiling) {
                mark += mark_of(live[at].offset, live[at].last);
                top = live[at].end;
            }
        }
        for (auto next = next_.begin() + first_of_partial; next != next_.end(); ++next) {
            next->ragged += ragged;
            next->mark += mark;
        }
    }

    void keep_best(const LiveRange& buffer) {
        kept_.clear();
        std::vector<std::uint64_t> marks;
        for (const Candidate& next : next_) {
            if (kept_.size() == width_)
                break;
            if (std::find(marks.begin(), marks.end(), next.mark) != marks.end())
                continue;
            marks.push_back(next.mark);
            entries_.push_back({partials_[next.partial].latest, next.offset});
            Partial& partial = kept_.emplace_back(partials_[next.partial]);
            partial.latest = static_cast<int>(entries_.size()) - 1;
            const auto above = std::find_if(partial.live.begin(), partial.live.end(),
                                            [&](const LiveBuffer& other) { return other.offset > next.offset; });
            partial.live.insert(above, {next.offset, next.offset + buffer.bytes, buffer.last});
        }
        std::swap(partials_, kept_);
    }

    Bytes limit_;
    std::size_t width_;
    std::vector<Partial> partials_, kept_;
    std::vector<Candidate> next_;
    std::vector<Entry> entries_;
};

}  // namespace

std::vector<Bytes> offsets_below(const std::vector<LiveRange>& buffers, Bytes limit, int width) {
    PackingSearch search(limit, width);
    for (const LiveRange& buffer : buffers)
        if (!search.place(buffer))
            return {};
    return search.offsets(buffers.size());
}

}  // namespace pw
