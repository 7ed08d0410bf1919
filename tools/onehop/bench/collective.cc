// SPDX-License-Identifier: Apache-2.0
#include "bench/collective.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "onehop/group_call.h"

namespace onehop::cli {
namespace {

constexpr Side kBlock{};
constexpr Side kBlockPerRank{.block_per_rank = true};
constexpr Side kRootBlock{.root_only = true};
constexpr Side kRootBlockPerRank{.block_per_rank = true, .root_only = true};

constexpr BusFactor kTwice{"2(n-1)/n", [](int ranks) { return 2.0 * (ranks - 1) / ranks; }};
constexpr BusFactor kOthersShare{"(n-1)/n", [](int ranks) { return 1.0 * (ranks - 1) / ranks; }};
constexpr BusFactor kOnce{"1", [](int) { return 1.0; }};

/// Calls make(offset in bytes, count) for every part.
template <class Make>
void for_each_part(const CollectiveCall& call, const Make& make) {
  const auto parts = static_cast<std::size_t>(call.parts);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = call.count * part / parts;
    make(begin * size_of(call.type), call.count * (part + 1) / parts - begin);
  }
}

Algorithm our_all_reduce(Group& group, const CollectiveCall& call, Stream stream,
                         const CallOptions& options) {
  if (call.parts == 1)
    return onehop::all_reduce(group, call.in, call.out, call.count, call.type, call.op, stream, options);
  const auto two_shot = [&] { return group.usage()[static_cast<std::size_t>(Algorithm::two_shot)]; };
  const std::uint64_t before = two_shot();
  GroupCall scope;
  for_each_part(call, [&](std::size_t at, std::size_t count) {
    (void)onehop::all_reduce(group, call.in + at, call.out + at, count, call.type, call.op, stream, options);
  });
  scope.end();
  return two_shot() == before ? Algorithm::one_shot : Algorithm::two_shot;
}

int nccl_all_reduce(const Nccl& nccl, const NcclMember& member, const CollectiveCall& call,
                    NcclStream stream) {
  int result = call.parts == 1 ? 0 : nccl.group_start();
  for_each_part(call, [&](std::size_t at, std::size_t count) {
    const int next = nccl.all_reduce(call.in + at, call.out + at, count, nccl_type(call.type),
                                     nccl_op(call.op), member.comm, stream);
    if (result == 0) result = next;
  });
  // A started group is always ended.
  const int end = call.parts == 1 ? 0 : nccl.group_end();
  return result == 0 ? end : result;
}

/// Sends and receives in one NCCL group, as in nccl-tests for collectives that older NCCLs lack.
class NcclExchange {
 public:
  NcclExchange(const Nccl& nccl, const NcclMember& member, const CollectiveCall& call, NcclStream stream)
      : nccl_(nccl), member_(member), call_(call), stream_(stream), result_(nccl.group_start()) {}

  void send(int block, int peer) {
    keep(nccl_.send(call_.in + offset(block), call_.count, type(), peer, member_.comm, stream_));
  }
  void receive(int block, int peer) {
    keep(nccl_.recv(call_.out + offset(block), call_.count, type(), peer, member_.comm, stream_));
  }
  /// The first result that is not success. A started group is always ended.
  [[nodiscard]] int end() {
    keep(nccl_.group_end());
    return result_;
  }

 private:
  void keep(int result) {
    if (result_ == 0) result_ = result;
  }
  [[nodiscard]] std::size_t offset(int block) const {
    return static_cast<std::size_t>(block) * call_.count * size_of(call_.type);
  }
  [[nodiscard]] int type() const { return nccl_type(call_.type); }

  const Nccl& nccl_;
  const NcclMember& member_;
  const CollectiveCall& call_;
  NcclStream stream_;
  int result_;
};

int nccl_all_to_all(const Nccl& nccl, const NcclMember& member, const CollectiveCall& call,
                    NcclStream stream) {
  if (nccl.all_to_all != nullptr) {
    return nccl.all_to_all(call.in, call.out, call.count, nccl_type(call.type), member.comm, stream);
  }
  NcclExchange exchange(nccl, member, call, stream);
  for (int peer = 0; peer < member.ranks; ++peer) {
    exchange.send(peer, peer);
    exchange.receive(peer, peer);
  }
  return exchange.end();
}

Algorithm our_all_to_all_v(Group& group, const CollectiveCall& call, Stream stream,
                           const CallOptions& options) {
  // Equal counts, so that it compares with all-to-all; the library does not know that they are equal.
  std::array<std::size_t, kMaxHostRanks> counts{};
  std::array<std::size_t, kMaxHostRanks> offsets{};
  const auto ranks = static_cast<std::size_t>(group.size());
  for (std::size_t r = 0; r < ranks; ++r) {
    counts[r] = call.count;
    offsets[r] = r * call.count;
  }
  const Blocks blocks{.counts = std::span(counts).first(ranks), .offsets = std::span(offsets).first(ranks)};
  return onehop::all_to_all_v(group, call.in, blocks, call.out, blocks, call.type, stream, options);
}

Algorithm our_send_recv(Group& group, const CollectiveCall& call, Stream stream, const CallOptions& options) {
  const int ranks = group.size();
  const int rank = group.rank().value;
  GroupCall scope;
  (void)onehop::send(group, call.in, call.count, call.type, Rank{(rank + 1) % ranks}, stream, options);
  (void)onehop::recv(group, call.out, call.count, call.type, Rank{(rank + ranks - 1) % ranks}, stream,
                     options);
  scope.end();
  return Algorithm::one_shot;
}

int nccl_send_recv(const Nccl& nccl, const NcclMember& member, const CollectiveCall& call,
                   NcclStream stream) {
  NcclExchange exchange(nccl, member, call, stream);
  exchange.send(0, (member.rank + 1) % member.ranks);
  exchange.receive(0, (member.rank + member.ranks - 1) % member.ranks);
  return exchange.end();
}

Algorithm our_barrier(Group& group, const CollectiveCall& /*call*/, Stream /*stream*/,
                      const CallOptions& /*options*/) {
  group.barrier();
  return Algorithm::none;
}

int nccl_gather(const Nccl& nccl, const NcclMember& member, const CollectiveCall& call, NcclStream stream) {
  const int root = call.root.value;
  if (nccl.gather != nullptr) {
    return nccl.gather(call.in, call.out, call.count, nccl_type(call.type), root, member.comm, stream);
  }
  NcclExchange exchange(nccl, member, call, stream);
  exchange.send(0, root);
  for (int peer = 0; peer < member.ranks && member.rank == root; ++peer) exchange.receive(peer, peer);
  return exchange.end();
}

int nccl_scatter(const Nccl& nccl, const NcclMember& member, const CollectiveCall& call, NcclStream stream) {
  const int root = call.root.value;
  if (nccl.scatter != nullptr) {
    return nccl.scatter(call.in, call.out, call.count, nccl_type(call.type), root, member.comm, stream);
  }
  NcclExchange exchange(nccl, member, call, stream);
  for (int peer = 0; peer < member.ranks && member.rank == root; ++peer) exchange.send(peer, peer);
  exchange.receive(0, root);
  return exchange.end();
}

// Parameters of the lambdas below: g group, n NCCL, m its member, c call, s stream, o options.
constexpr Collective kCollectives[] = {
    {.name = "all-reduce",
     .in = kBlock,
     .out = kBlock,
     .reduces = true,
     .has_algorithms = true,
     .bus_factor = kTwice,
     .ours = our_all_reduce,
     .nccl = nccl_all_reduce,
     .nccl_has_symmetric = true},
    {.name = "all-gather",
     .in = kBlock,
     .out = kBlockPerRank,
     .bus_factor = kOthersShare,
     .ours = [](Group& g, const CollectiveCall& c, Stream s,
                const CallOptions& o) { return onehop::all_gather(g, c.in, c.out, c.count, c.type, s, o); },
     .nccl = [](const Nccl& n, const NcclMember& m, const CollectiveCall& c,
                NcclStream s) { return n.all_gather(c.in, c.out, c.count, nccl_type(c.type), m.comm, s); },
     .nccl_has_symmetric = true},
    {.name = "reduce-scatter",
     .in = kBlockPerRank,
     .out = kBlock,
     .reduces = true,
     .bus_factor = kOthersShare,
     .ours =
         [](Group& g, const CollectiveCall& c, Stream s, const CallOptions& o) {
           return onehop::reduce_scatter(g, c.in, c.out, c.count, c.type, c.op, s, o);
         },
     .nccl =
         [](const Nccl& n, const NcclMember& m, const CollectiveCall& c, NcclStream s) {
           return n.reduce_scatter(c.in, c.out, c.count, nccl_type(c.type), nccl_op(c.op), m.comm, s);
         },
     .nccl_has_symmetric = true},
    {.name = "broadcast",
     .in = kRootBlock,
     .out = kBlock,
     .bus_factor = kOnce,
     .ours =
         [](Group& g, const CollectiveCall& c, Stream s, const CallOptions& o) {
           return onehop::broadcast(g, c.in, c.out, c.count, c.type, c.root, s, o);
         },
     .nccl =
         [](const Nccl& n, const NcclMember& m, const CollectiveCall& c, NcclStream s) {
           return n.broadcast(c.in, c.out, c.count, nccl_type(c.type), c.root.value, m.comm, s);
         }},
    {.name = "reduce",
     .in = kBlock,
     .out = kRootBlock,
     .reduces = true,
     .has_algorithms = true,
     .bus_factor = kOnce,
     .ours =
         [](Group& g, const CollectiveCall& c, Stream s, const CallOptions& o) {
           return onehop::reduce(g, c.in, c.out, c.count, c.type, c.op, c.root, s, o);
         },
     .nccl =
         [](const Nccl& n, const NcclMember& m, const CollectiveCall& c, NcclStream s) {
           return n.reduce(c.in, c.out, c.count, nccl_type(c.type), nccl_op(c.op), c.root.value, m.comm, s);
         }},
    {.name = "all-to-all",
     .in = kBlockPerRank,
     .out = kBlockPerRank,
     .bus_factor = kOthersShare,
     .ours = [](Group& g, const CollectiveCall& c, Stream s,
                const CallOptions& o) { return onehop::all_to_all(g, c.in, c.out, c.count, c.type, s, o); },
     .nccl = nccl_all_to_all},
    {.name = "gather",
     .in = kBlock,
     .out = kRootBlockPerRank,
     .bus_factor = kOthersShare,
     .ours =
         [](Group& g, const CollectiveCall& c, Stream s, const CallOptions& o) {
           return onehop::gather(g, c.in, c.out, c.count, c.type, c.root, s, o);
         },
     .nccl = nccl_gather},
    {.name = "scatter",
     .in = kRootBlockPerRank,
     .out = kBlock,
     .bus_factor = kOthersShare,
     .ours =
         [](Group& g, const CollectiveCall& c, Stream s, const CallOptions& o) {
           return onehop::scatter(g, c.in, c.out, c.count, c.type, c.root, s, o);
         },
     .nccl = nccl_scatter},
    {.name = "all-to-all-v",
     .in = kBlockPerRank,
     .out = kBlockPerRank,
     .bus_factor = kOthersShare,
     .ours = our_all_to_all_v,
     .nccl = nccl_all_to_all},
    {.name = "send-recv",
     .in = kBlock,
     .out = kBlock,
     .bus_factor = kOnce,
     .ours = our_send_recv,
     .nccl = nccl_send_recv,
     .ring = true},
    {.name = "barrier",
     .in = kBlock,
     .out = kBlock,
     .bus_factor = kOnce,
     .ours = our_barrier,
     .nccl = nullptr,
     .moves_data = false},
};
constexpr std::size_t kOthers = 2;  // at the end

}  // namespace

std::span<const Collective> benchmarks() {
  return kCollectives;
}

std::span<const Collective> collectives() {
  return benchmarks().first(std::size(kCollectives) - kOthers);
}

const Collective* find_collective(std::string_view typed) {
  std::string name(typed);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto* const found = std::find_if(std::begin(kCollectives), std::end(kCollectives),
                                         [&](const Collective& each) { return each.name == name; });
  return found != std::end(kCollectives) ? found : nullptr;
}

}  // namespace onehop::cli
