// SPDX-License-Identifier: Apache-2.0
#include "fault/chaos_calls.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "os/memfd.h"
#include "os/unique_fd.h"

namespace onehop::fault {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;
/// More than the largest sum: six ranks with elements of 0 and 1.
constexpr unsigned kValues = 7;

/// The bits of the values 0 to 6, which every type represents exactly.
std::uint64_t bits_of(DType type, unsigned value) {
  using Table = std::array<std::uint64_t, kValues>;
  static constexpr Table f16{0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600};
  static constexpr Table bf16{0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
  static constexpr Table e4m3{0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c};
  static constexpr Table e5m2{0, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46};
  switch (type) {
    case DType::f16:
      return f16[value];
    case DType::bf16:
      return bf16[value];
    case DType::e4m3:
      return e4m3[value];
    case DType::e5m2:
      return e5m2[value];
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    default:
      return value;
  }
}

void check(bool right, const std::string& what) {
  if (!right) throw std::logic_error(what + " succeeded with a wrong result");
}

Members all_of(int size) {
  Members members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

std::size_t at(Rank r) {
  return static_cast<std::size_t>(r.value);
}

}  // namespace

// --- one collective ---

CheckedCollective::CheckedCollective(Random& random, const Group& group)
    : size_(group.size()),
      collective_(static_cast<Collective>(random.below(kCollectives))),
      type_(static_cast<DType>(random.below(kDTypeCount))),
      count_(random.size_up_to(kMostBytes / size_of(type_) / static_cast<std::size_t>(size_))),
      op_(std::array{ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}[random.below(4)]),
      root_(static_cast<int>(random.below(static_cast<std::size_t>(size_)))),
      in_place_(random.one_in(2)),
      salt_(random.below(1000)) {
  const std::size_t algorithm = random.below(4);
  if (traits_of(collective_).has_two_shot) {
    if (algorithm == 1) options_.algorithm = Algorithm::one_shot;
    if (algorithm == 2) options_.algorithm = Algorithm::two_shot;
  }
  fill(group.rank().value);
}

/// An element of `rank`'s input. Small, so that every type can represent the sums.
unsigned CheckedCollective::element(int rank, std::size_t index) const {
  const std::size_t mixed = (index + 1) * 31 + static_cast<std::size_t>(rank) * 17 + salt_;
  return static_cast<unsigned>((mixed ^ (mixed >> 5)) & 1);
}

void CheckedCollective::put(std::vector<std::byte>& to, unsigned value) const {
  const std::uint64_t bits = bits_of(type_, value);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&bits);
  to.insert(to.end(), bytes, bytes + size_of(type_));
}

void CheckedCollective::put_block(std::vector<std::byte>& to, int rank, int block) const {
  for (std::size_t i = 0; i < count_; ++i)
    put(to, element(rank, static_cast<std::size_t>(block) * count_ + i));
}

unsigned CheckedCollective::reduced(std::size_t index) const {
  unsigned ones = 0;
  for (int r = 0; r < size_; ++r) ones += element(r, index);
  switch (op_) {
    case ReduceOp::sum:
      return ones;
    case ReduceOp::max:
      return ones > 0 ? 1 : 0;
    default:
      return ones == static_cast<unsigned>(size_) ? 1 : 0;  // min, prod
  }
}

/// The number of elements that `from` sends to `to` in all_to_all_v.
std::size_t CheckedCollective::pair_count(int from, int to) const {
  return count_ == 0
             ? 0
             : (static_cast<std::size_t>(from) * 7 + static_cast<std::size_t>(to) * 3 + salt_) % count_;
}

void CheckedCollective::fill(int rank) {
  const auto blocks = [&](int n) {
    for (int b = 0; b < n; ++b) put_block(in_, rank, b);
  };
  const auto reduced_block = [&](int block) {
    for (std::size_t i = 0; i < count_; ++i) {
      put(expected_, reduced(static_cast<std::size_t>(block) * count_ + i));
    }
  };
  const bool root = rank == root_.value;
  std::size_t out_blocks = 1;
  switch (collective_) {
    case Collective::all_reduce:
      blocks(1);
      reduced_block(0);
      break;
    case Collective::reduce:
      blocks(1);
      if (root) reduced_block(0);
      break;
    case Collective::reduce_scatter:
      blocks(size_);
      reduced_block(rank);
      break;
    case Collective::broadcast:
      blocks(1);
      put_block(expected_, root_.value, 0);
      break;
    case Collective::scatter:
      blocks(size_);
      put_block(expected_, root_.value, rank);
      break;
    case Collective::gather:
    case Collective::all_gather:
      blocks(1);
      out_blocks = static_cast<std::size_t>(size_);
      for (int r = 0; r < size_ && (root || collective_ == Collective::all_gather); ++r)
        put_block(expected_, r, 0);
      break;
    case Collective::all_to_all:
      blocks(size_);
      out_blocks = static_cast<std::size_t>(size_);
      for (int r = 0; r < size_; ++r) put_block(expected_, r, rank);
      break;
    default:  // all_to_all_v
      blocks(size_);
      out_blocks = static_cast<std::size_t>(size_);
      std::size_t offset = 0;
      for (int r = 0; r < size_; ++r) {
        in_counts_.push_back(pair_count(rank, r));
        in_offsets_.push_back(static_cast<std::size_t>(r) * count_);
        out_counts_.push_back(pair_count(r, rank));
        out_offsets_.push_back(offset);
        offset += out_counts_.back();
        for (std::size_t i = 0; i < out_counts_.back(); ++i) {
          put(expected_, element(r, static_cast<std::size_t>(rank) * count_ + i));
        }
      }
      break;
  }
  out_.resize(out_blocks * count_ * size_of(type_));
  in_place_ = in_place_ && collective_ == Collective::all_reduce;
  if (in_place_) out_ = in_;
}

void CheckedCollective::call(Group& group) {
  const void* const in = in_place_ ? out_.data() : in_.data();
  void* const out = out_.data();
  (void)run(group, {.collective = collective_,
                    .in = in,
                    .out = out,
                    .count = count_,
                    .type = type_,
                    .op = op_,
                    .root = root_,
                    .options = options_,
                    .in_blocks = {.counts = in_counts_, .offsets = in_offsets_},
                    .out_blocks = {.counts = out_counts_, .offsets = out_offsets_}});
}

void CheckedCollective::verify() const {
  check(std::equal(expected_.begin(), expected_.end(), out_.begin()),
        fmt::format("{} of {} {}", traits_of(collective_).name, count_, to_string(type_)));
}

// --- one rank ---

ChaosRank::ChaosRank(const ChaosPlan& plan, Rank rank, std::shared_ptr<Store> store, Duration timeout,
                     Hooks hooks)
    : plan_(plan),
      rank_(rank),
      store_(std::move(store)),
      timeout_(timeout),
      hooks_(std::move(hooks)),
      everyone_(all_of(plan.ranks)),
      members_(everyone_) {}

std::string ChaosRank::where() const {
  return fmt::format("step {}, {}", step_, what_);
}

void ChaosRank::begin(const char* what) {
  what_ = what;
  hooks_.before_call();
}

void ChaosRank::join() {
  hooks_.before_join();
  joining_ = true;
  begin("join");
  group_ = Group::join(store_,
                       {.rank = rank_, .size = plan_.ranks, .timeout = timeout_, .scratch_bytes = 256 << 10});
  joining_ = false;
  hooks_.joined();
}

void ChaosRank::run() {
  if (!group_) join();
  while (true) {
    members_ = everyone_;
    narrow_ = false;
    step(plan_.step(step_++));
  }
}

void ChaosRank::step(Random random) {
  switch (random.below(16)) {
    case 0:
      return split(random);
    case 1:
      return memory(random);
    case 2:
      return descriptors(random);
    case 3:
      return group_call(random);
    case 4:
      return pairs(random);
    case 5: {
      begin("Group::all_gather");
      const std::vector<std::string> texts =
          group_->all_gather(std::string(random.size_up_to(1000), 'x') + std::to_string(rank_.value));
      for (std::size_t r = 0; r < texts.size(); ++r) check(texts[r].ends_with(std::to_string(r)), what_);
      return;
    }
    case 6:
      begin("barrier");
      return group_->barrier();
    case 7:
      // Joining takes as long as a hundred other calls, and most strikes should hit those.
      if (!random.one_in(8)) return;
      group_.reset();
      return join();
    default:
      return collective(random, *group_);
  }
}

void ChaosRank::collective(Random& random, Group& group) {
  CheckedCollective call(random, group);
  begin(narrow_ ? "a collective of a sub-group" : "a collective");
  call.call(group);
  call.verify();
}

void ChaosRank::group_call(Random& random) {
  const int n = plan_.ranks;
  std::vector<CheckedCollective> calls;
  for (std::size_t i = random.below(4); i > 0; --i) calls.emplace_back(random, *group_);
  const std::size_t count = random.size_up_to(20'000);
  const std::vector<int> in(count, rank_.value);
  std::vector<std::vector<int>> out(static_cast<std::size_t>(n), std::vector<int>(count, -1));
  begin("a GroupCall");
  GroupCall scope;
  for (CheckedCollective& each : calls) each.call(*group_);
  for (Rank peer{0}; peer.value < n; ++peer.value) {
    (void)send(*group_, in.data(), count, DType::i32, peer);
    (void)recv(*group_, out[at(peer)].data(), count, DType::i32, peer);
  }
  scope.end();
  for (const CheckedCollective& each : calls) each.verify();
  for (std::size_t r = 0; r < out.size(); ++r) {
    check(std::count(out[r].begin(), out[r].end(), static_cast<int>(r)) == static_cast<std::ptrdiff_t>(count),
          "recv in a GroupCall");
  }
}

/// Ranks send and receive in pairs; one may be left over.
void ChaosRank::pairs(Random& random) {
  const int shift = static_cast<int>(random.below(static_cast<std::size_t>(plan_.ranks)));
  const int position = (rank_.value + shift) % plan_.ranks;
  const int other = position ^ 1;
  if (other >= plan_.ranks) return;
  const Rank peer{(other + plan_.ranks - shift) % plan_.ranks};
  std::vector<float> data(random.size_up_to(20'000), static_cast<float>(rank_.value));
  narrow_ = true;
  if (position < other) {
    begin("send");
    (void)send(*group_, data.data(), data.size(), DType::f32, peer);
  } else {
    begin("recv");
    (void)recv(*group_, data.data(), data.size(), DType::f32, peer);
    check(std::count(data.begin(), data.end(), static_cast<float>(peer.value)) ==
              static_cast<std::ptrdiff_t>(data.size()),
          "recv");
  }
}

void ChaosRank::split(Random& random) {
  const auto n = static_cast<std::size_t>(plan_.ranks);
  std::vector<int> colors(n, 3);
  std::vector<int> keys(n);
  for (int& key : keys) key = static_cast<int>(random.below(4)) - 2;
  // Every group has two ranks or more.
  if (n >= 4 && random.one_in(2)) {
    const std::size_t first = 2 + random.below(n - 3);
    const std::size_t shift = random.below(n);
    for (std::size_t i = 0; i < n; ++i) colors[(i + shift) % n] = i < first ? 0 : 1;
  } else if (n >= 3 && random.one_in(3)) {
    colors[random.below(n)] = -1;
  }
  begin("split");
  std::optional<Group> part = group_->split(colors[at(rank_)], keys[at(rank_)]);
  if (!part) return;
  Members members;
  for (std::size_t r = 0; r < n; ++r) {
    if (colors[r] == colors[at(rank_)]) members.push_back(static_cast<int>(r));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
  members_ = members;
  narrow_ = true;
  check(part->size() == static_cast<int>(members_.size()) && members_[at(part->rank())] == rank_.value,
        "split");
  for (std::size_t i = 1 + random.below(2); i > 0; --i) collective(random, *part);
  begin("barrier of a sub-group");
  part->barrier();
}

void ChaosRank::memory(Random& random) {
  const int n = plan_.ranks;
  const auto mark = [&](int r) { return static_cast<std::byte>(1 + r + 16 * (step_ % 8)); };
  begin("allocate");
  const SymmetricBuffer buffer = group_->allocate(1 + random.size_up_to(kMostBytes));
  check(std::count(buffer.local(), buffer.local() + buffer.bytes(), std::byte{0}) ==
            static_cast<std::ptrdiff_t>(buffer.bytes()),
        "allocate");
  std::fill_n(buffer.local(), buffer.bytes(), mark(rank_.value));
  const int channel = static_cast<int>(random.below(SymmetricBuffer::kDefaultChannels));
  begin("barrier of a buffer");
  buffer.barrier(channel, timeout_);
  for (Rank r{0}; r.value < n; ++r.value) {
    const std::byte* const data = buffer.peer(r);
    check(data[0] == mark(r.value) && data[buffer.bytes() - 1] == mark(r.value), "symmetric memory");
  }
  buffer.put_signal(Rank{(rank_.value + 1) % n}, channel);
  narrow_ = true;
  begin("wait_signal");
  buffer.wait_signal(Rank{(rank_.value + n - 1) % n}, channel, timeout_);
  narrow_ = false;
  begin("second barrier of a buffer");
  buffer.barrier(channel, timeout_);
  // Host ranks cannot register memory. The refusal leaves the group usable.
  if (random.one_in(4)) {
    begin("register_buffer");
    try {
      (void)group_->register_buffer(buffer.local(), 1);
      check(false, what_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
    }
  }
}

void ChaosRank::descriptors(Random& random) {
  const auto file_of = [](int content) {
    os::UniqueFd file(::memfd_create("chaos", MFD_CLOEXEC));
    check(file && ::pwrite(file.get(), &content, sizeof content, 0) == sizeof content, "memfd_create");
    return file;
  };
  const auto content_of = [](int fd) {
    int content = -1;
    return ::pread(fd, &content, sizeof content, 0) == sizeof content ? content : -1;
  };
  const os::UniqueFd own = file_of(rank_.value);
  if (random.one_in(2)) {
    begin("all_gather_fds");
    const std::vector<int> all = group_->channel().all_gather_fds(own.get(), timeout_);
    bool right = true;
    for (std::size_t r = 0; r < all.size(); ++r) {
      right = right && content_of(all[r]) == static_cast<int>(r);
      if (r != at(rank_)) ::close(all[r]);
    }
    check(right, what_);
    return;
  }
  const Rank root{static_cast<int>(random.below(static_cast<std::size_t>(plan_.ranks)))};
  const bool none = random.one_in(4);
  begin("broadcast_fds");
  const int fd = group_->channel().broadcast_fds(none ? -1 : own.get(), root, timeout_);
  const int content = fd < 0 ? -1 : content_of(fd);
  if (fd >= 0 && rank_ != root) ::close(fd);
  check(content == (none ? -1 : root.value), what_);
}

}  // namespace onehop::fault
