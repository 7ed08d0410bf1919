// SPDX-License-Identifier: Apache-2.0
#include "conformance/collective_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace onehop::testing {
namespace {

constexpr std::size_t kGuard = 256;
constexpr std::byte kPoison{0xa5};
// The greatest distance of data from the start of its memory: the shift, and the displacement of ranks.
constexpr std::size_t kSlack = 64 * 8 + 64 * 64;

constexpr const char* kPlacements[] = {"ordinary",         "symmetric",   "symmetric input",
                                       "symmetric output", "sub-buffers", "even ranks only",
                                       "displaced"};
static_assert(std::size(kPlacements) == kPlacementCount);

// Largest gap between the blocks of all_to_all_v, in elements.
constexpr std::size_t kMaxGap = 4;

/// Pseudo-random numbers, the same on all ranks.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = (a * 0x9e3779b97f4a7c15 + b) * 0xbf58476d1ce4e5b9 + c;
  x = (x ^ (x >> 29)) * 0x94d049bb133111eb;
  return x ^ (x >> 32);
}

/// The number of elements that rank `from` sends to rank `to` in an all_to_all_v: often none, otherwise up to
/// twice the count.
std::size_t count_between(const CollectiveCase& call, std::size_t from, std::size_t to) {
  const std::uint64_t x = mixed(call.start, from, to);
  return x % 4 == 0 ? 0 : x / 4 % (2 * call.count + 1);
}

/// One rank's part of a call: its arguments, and the expected memory afterwards.
class Part {
 public:
  Part(const CollectiveCase& call, const Streams& streams, int rank, int ranks)
      : call_(call),
        streams_(streams),
        element_(size_of(call.type)),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)) {
    const std::size_t root = static_cast<std::size_t>(call.root.value);
    const bool is_root = rank_ == root;
    const std::size_t count = call.count;
    switch (call.collective) {
      case Collective::all_reduce:
        take(rank_, call.start, count);
        expect_sum(call.start);
        in_place = 0;
        return;
      case Collective::all_gather:
        take(rank_, call.start, count);
        for (std::size_t r = 0; r < ranks_; ++r) expect_from(r, call.start, count);
        in_place = static_cast<std::ptrdiff_t>(rank_ * count * element_);
        return;
      case Collective::reduce_scatter:
        take(rank_, call.start, ranks_ * count);
        expect_sum(call.start + rank_ * count);
        in_place = -static_cast<std::ptrdiff_t>(rank_ * count * element_);
        return;
      case Collective::broadcast:
        if (is_root) take(root, call.start, count);
        expect_from(root, call.start, count);
        if (is_root) in_place = 0;
        return;
      case Collective::reduce:
        take(rank_, call.start, count);
        if (is_root) expect_sum(call.start);
        if (is_root) in_place = 0;
        return;
      case Collective::all_to_all:
        take(rank_, call.start, ranks_ * count);
        for (std::size_t r = 0; r < ranks_; ++r) expect_from(r, call.start + rank_ * count, count);
        return;
      case Collective::all_to_all_v:
        input_at = output_at = Vectors(ranks_);
        for (std::size_t r = 0; r < ranks_; ++r) {
          const std::size_t sent = count_between(call, rank_, r);
          pad(input, r);
          input_at.set(r, sent, input.size() / element_);
          take(rank_, call.start + r, sent);
        }
        // Backwards, since the caller chooses the order of blocks.
        for (std::size_t r = ranks_; r-- > 0;) {
          const std::size_t received = count_between(call, r, rank_);
          pad(output, r);
          output_at.set(r, received, output.size() / element_);
          expect_from(r, call.start + rank_, received);
        }
        return;
      case Collective::gather:
        take(rank_, call.start, count);
        if (!is_root) return;
        for (std::size_t r = 0; r < ranks_; ++r) expect_from(r, call.start, count);
        in_place = static_cast<std::ptrdiff_t>(rank_ * count * element_);
        return;
      case Collective::scatter:
        if (is_root) take(root, call.start, ranks_ * count);
        expect_from(root, call.start + rank_ * count, count);
        if (is_root) in_place = -static_cast<std::ptrdiff_t>(rank_ * count * element_);
        return;
      default:
        throw std::logic_error("no collective of data");
    }
  }

  struct Vectors {
    std::vector<std::size_t> counts;
    std::vector<std::size_t> offsets;

    explicit Vectors(std::size_t ranks = 0) : counts(ranks), offsets(ranks) {}
    void set(std::size_t r, std::size_t count, std::size_t offset) {
      counts[r] = count;
      offsets[r] = count == 0 ? SIZE_MAX : offset;  // the library must not read this offset
    }
    [[nodiscard]] Blocks blocks() const { return {.counts = counts, .offsets = offsets}; }
  };

  bool reads = false;   ///< the rank's input
  bool writes = false;  ///< the rank's output
  Bytes input;
  Bytes output;                            ///< afterwards; poison where the call does not write
  std::optional<std::ptrdiff_t> in_place;  ///< then: where the input is relative to the output, in bytes
  Vectors input_at;
  Vectors output_at;

 private:
  void take(std::size_t rank, std::size_t start, std::size_t count) {
    reads = true;
    input.resize(input.size() + count * element_);
    streams_.input(static_cast<int>(rank), start, count, input.data() + input.size() - count * element_);
  }
  void expect_from(std::size_t rank, std::size_t start, std::size_t count) {
    writes = true;
    output.resize(output.size() + count * element_);
    streams_.input(static_cast<int>(rank), start, count, output.data() + output.size() - count * element_);
  }
  void expect_sum(std::size_t start) {
    writes = true;
    output.resize(call_.count * element_);
    streams_.expected(call_.how(), start, call_.count, output.data());
  }
  void pad(Bytes& data, std::size_t r) const {
    data.resize(data.size() + mixed(call_.start, r, rank_) / 4 % (kMaxGap + 1) * element_, kPoison);
  }

  const CollectiveCase& call_;
  const Streams& streams_;
  std::size_t element_;
  std::size_t rank_;
  std::size_t ranks_;
};

}  // namespace

std::size_t CollectiveCase::max_bytes(int ranks) const {
  const auto n = static_cast<std::size_t>(ranks);
  if (traits_of(collective).has_two_shot || collective == Collective::broadcast) return count * size_of(type);
  if (collective == Collective::all_to_all_v) return n * (2 * count + kMaxGap) * size_of(type);
  return n * count * size_of(type);
}

std::string CollectiveCase::describe() const {
  std::string how = traits_of(collective).reduces ? fmt::format(" {}", to_string(op)) : std::string();
  if (op == ReduceOp::premul_sum) how += weighted ? " by a factor per rank" : fmt::format(" by {}", factor);
  return fmt::format("{} of {} {}{}{} (data {}{}, {}, {} elements past alignment, stream start {}, {})",
                     traits_of(collective).name, count, to_string(type), how,
                     traits_of(collective).has_root() ? fmt::format(", root {}", root.value) : std::string(),
                     kPlacements[static_cast<int>(placement)], symmetric ? ", as promised" : "",
                     in_place ? "in place" : "out of place", shift, start,
                     algorithm ? to_string(*algorithm) : "default algorithm");
}

OwnFactor::OwnFactor(RankMemory& memory, Rank rank)
    : memory_(memory), data_(memory.allocate(sizeof(double) * kDTypeCount)) {
  for (int type = 0; type < kDTypeCount; ++type) {
    const Bytes element = factor_of_rank(static_cast<DType>(type), static_cast<std::size_t>(rank.value));
    elements_.insert(elements_.end(), element.begin(), element.end());
    elements_.resize(sizeof(double) * (static_cast<std::size_t>(type) + 1));
  }
  memory.upload(data_, elements_.data(), elements_.size());
}

CallOptions OwnFactor::options(DType type, const Reduction& how, bool on_host) const {
  CallOptions options{.algorithm = {}, .timeout = {}, .factor = how.factor};
  if (!how.weighted) return options;
  const std::size_t at = sizeof(double) * static_cast<std::size_t>(type);
  options.own_factor_on_host = on_host;
  options.own_factor = (on_host ? elements_.data() : data_) + at;
  return options;
}

Workspace::Workspace(const Backend& backend, Group& group, std::size_t max_bytes)
    : group_(group), memory_(backend.memory(group)), factor_(*memory_, group.rank()), max_bytes_(max_bytes) {
  const std::size_t room = 2 * kGuard + kSlack + max_bytes;
  for (SymmetricBuffer& buffer : symmetric_) buffer = group.allocate(2 * room);
  for (std::byte*& data : ordinary_) data = memory_->allocate(room);
}

Workspace::~Workspace() {
  for (std::byte* const data : ordinary_) memory_->release(data);
}

std::byte* Workspace::address(const CollectiveCase& call, bool output) const {
  const auto rank = static_cast<std::size_t>(group_.rank().value);
  const std::size_t begin = kGuard + call.shift * size_of(call.type);
  const std::size_t which = output ? 1 : 0;
  switch (call.placement) {
    case Placement::symmetric:
      return symmetric_[which].local() + begin;
    case Placement::symmetric_input:
      return output ? ordinary_[1] + begin : symmetric_[0].local() + begin;
    case Placement::symmetric_output:
      return output ? symmetric_[1].local() + begin : ordinary_[0] + begin;
    case Placement::sub_buffers: {
      const std::size_t half = symmetric_[0].bytes() / 2 / 64 * 64;
      return symmetric_[0].sub(which * half, half).local() + begin;
    }
    case Placement::even_ranks_only:
      return (rank % 2 == 0 ? symmetric_[which].local() : ordinary_[which]) + begin;
    case Placement::displaced:
      return symmetric_[which].local() + begin + rank * 64;
    case Placement::ordinary:
      break;
  }
  return ordinary_[which] + begin;
}

void Workspace::put(std::byte* at, const Bytes& content) {
  image_.assign(content.size() + 2 * kGuard, kPoison);
  std::copy(content.begin(), content.end(), image_.begin() + kGuard);
  memory_->upload(at - kGuard, image_.data(), image_.size());
}

void Workspace::expect(std::byte* at, const Bytes& content, const CollectiveCase& call, const char* what) {
  image_.resize(content.size() + 2 * kGuard);
  memory_->download(image_.data(), at - kGuard, image_.size());
  const auto complain = [&](const std::string& text) {
    throw std::runtime_error(
        fmt::format("rank {} of {}: {}: {}", group_.rank().value, group_.size(), call.describe(), text));
  };
  if (!content.empty() && std::memcmp(image_.data() + kGuard, content.data(), content.size()) != 0) {
    const auto differ = std::mismatch(content.begin(), content.end(), image_.begin() + kGuard);
    const auto i = static_cast<std::size_t>(differ.first - content.begin()) / size_of(call.type);
    complain(fmt::format("{} {} is {} instead of {}", what, i,
                         element_text(call.type, image_.data() + kGuard, i),
                         element_text(call.type, content.data(), i)));
  }
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (image_[i] != kPoison) complain(fmt::format("byte {} before the {} was written", kGuard - i, what));
    if (image_[kGuard + content.size() + i] != kPoison)
      complain(fmt::format("byte {} after the {} was written", i, what));
  }
}

Algorithm Workspace::call(const CollectiveCase& call, const std::byte* in, std::byte* out,
                          const Blocks& in_blocks, const Blocks& out_blocks) {
  CallOptions options = factor_.options(call.type, call.how(), call.start % 2 == 0);
  options.algorithm = call.algorithm;
  options.symmetric = call.symmetric;
  return onehop::run(group_, {.collective = call.collective,
                              .in = in,
                              .out = out,
                              .count = call.count,
                              .type = call.type,
                              .op = call.op,
                              .root = call.root,
                              .stream = memory_->stream(),
                              .options = options,
                              .in_blocks = in_blocks,
                              .out_blocks = out_blocks});
}

Algorithm Workspace::run(const CollectiveCase& each, const Streams& streams) {
  if (each.max_bytes(group_.size()) > max_bytes_)
    throw std::logic_error("the workspace is too small for " + each.describe());
  const Part part(each, streams, group_.rank().value, group_.size());
  std::byte* in = address(each, false);
  std::byte* out = address(each, true);
  Bytes before(part.output.size(), kPoison);
  Bytes after = part.output;
  const bool in_place = each.in_place && part.in_place;
  if (in_place && part.input.size() <= part.output.size()) {  // the input is part of the output
    in = out + *part.in_place;
    std::copy(part.input.begin(), part.input.end(), before.begin() + *part.in_place);
    put(out, before);
  } else if (in_place) {  // the output is part of the input
    out = in - *part.in_place;
    after = part.input;
    std::copy(part.output.begin(), part.output.end(), after.begin() - *part.in_place);
    put(in, part.input);
  } else {
    put(out, before);
    put(in, part.input);
  }
  // A pointer that a rank does not need may be anything: null, read-only memory, or the other pointer.
  const std::byte* passed_in = in;
  std::byte* passed_out = out;
  if (!part.reads) passed_in = each.in_place ? out : each.start % 2 == 0 ? nullptr : in;
  if (!part.writes && !each.symmetric) passed_out = each.in_place ? in : each.start % 2 == 0 ? nullptr : out;

  const Algorithm used = call(each, passed_in, passed_out, part.input_at.blocks(), part.output_at.blocks());
  group_.synchronize(memory_->stream());

  if (in_place) {
    expect(std::min(in, out), after, each, "element");
  } else {
    expect(in, part.input, each, "input element");
    expect(out, after, each, "output element");
  }
  return used;
}

}  // namespace onehop::testing
