// SPDX-License-Identifier: Apache-2.0
#include "bench/collective.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "onehop/group_call.h"

namespace onehop::cli {
namespace {

constexpr BusFactor kTwice{"2(n-1)/n", [](int ranks) { return 2.0 * (ranks - 1) / ranks; }};
constexpr BusFactor kOthersShare{"(n-1)/n", [](int ranks) { return 1.0 * (ranks - 1) / ranks; }};
constexpr BusFactor kOnce{"1", [](int) { return 1.0; }};

/// Calls make(offset in bytes, count) for every part.
template <class Make>
void for_each_part(const BenchCall& call, const Make& make) {
  const auto parts = static_cast<std::size_t>(call.parts);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = call.count * part / parts;
    make(begin * size_of(call.type), call.count * (part + 1) / parts - begin);
  }
}

Algorithm all_reduce_in_parts(Group& group, const BenchCall& call) {
  const auto two_shot = [&] { return group.usage()[static_cast<std::size_t>(Algorithm::two_shot)]; };
  const std::uint64_t before = two_shot();
  GroupCall scope;
  for_each_part(call, [&](std::size_t at, std::size_t count) {
    BenchCall part = call;
    part.in = call.in_at(at);
    part.out = call.out_at(at);
    part.count = count;
    (void)run(group, part);
  });
  scope.end();
  return two_shot() == before ? Algorithm::one_shot : Algorithm::two_shot;
}

Algorithm pass_to_next(Group& group, const BenchCall& call) {
  const int ranks = group.size();
  const int rank = group.rank().value;
  BenchCall transfer = call;
  GroupCall scope;
  transfer.root = Rank{(rank + 1) % ranks};
  (void)run(group, transfer);
  transfer.collective = Collective::recv;
  transfer.root = Rank{(rank + ranks - 1) % ranks};
  (void)run(group, transfer);
  scope.end();
  return Algorithm::one_shot;
}

/// all_to_all_v with equal counts, so that it compares with all-to-all; the library does not know that they are equal.
Algorithm exchange_equal_blocks(Group& group, const BenchCall& call) {
  std::array<std::size_t, kMaxHostRanks> counts{};
  std::array<std::size_t, kMaxHostRanks> offsets{};
  const auto ranks = static_cast<std::size_t>(group.size());
  for (std::size_t r = 0; r < ranks; ++r) {
    counts[r] = call.count;
    offsets[r] = r * call.count;
  }
  BenchCall exchange = call;
  exchange.in_blocks = {.counts = std::span(counts).first(ranks), .offsets = std::span(offsets).first(ranks)};
  exchange.out_blocks = exchange.in_blocks;
  return run(group, exchange);
}

int nccl_all_reduce(const Nccl& nccl, const NcclMember& member, const BenchCall& call, NcclStream stream) {
  int result = call.parts == 1 ? 0 : nccl.group_start();
  for_each_part(call, [&](std::size_t at, std::size_t count) {
    const int next = nccl.all_reduce(call.in_at(at), call.out_at(at), count, nccl_type(call.type),
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
  NcclExchange(const Nccl& nccl, const NcclMember& member, const BenchCall& call, NcclStream stream)
      : nccl_(nccl), member_(member), call_(call), stream_(stream), result_(nccl.group_start()) {}

  void send(int block, int peer) {
    keep(nccl_.send(call_.in_at(offset(block)), call_.count, type(), peer, member_.comm, stream_));
  }
  void receive(int block, int peer) {
    keep(nccl_.recv(call_.out_at(offset(block)), call_.count, type(), peer, member_.comm, stream_));
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
  const BenchCall& call_;
  NcclStream stream_;
  int result_;
};

int nccl_all_to_all(const Nccl& nccl, const NcclMember& member, const BenchCall& call, NcclStream stream) {
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

int nccl_send_recv(const Nccl& nccl, const NcclMember& member, const BenchCall& call, NcclStream stream) {
  NcclExchange exchange(nccl, member, call, stream);
  exchange.send(0, (member.rank + 1) % member.ranks);
  exchange.receive(0, (member.rank + member.ranks - 1) % member.ranks);
  return exchange.end();
}

int nccl_gather(const Nccl& nccl, const NcclMember& member, const BenchCall& call, NcclStream stream) {
  const int root = call.root.value;
  if (nccl.gather != nullptr) {
    return nccl.gather(call.in, call.out, call.count, nccl_type(call.type), root, member.comm, stream);
  }
  NcclExchange exchange(nccl, member, call, stream);
  exchange.send(0, root);
  for (int peer = 0; peer < member.ranks && member.rank == root; ++peer) exchange.receive(peer, peer);
  return exchange.end();
}

int nccl_scatter(const Nccl& nccl, const NcclMember& member, const BenchCall& call, NcclStream stream) {
  const int root = call.root.value;
  if (nccl.scatter != nullptr) {
    return nccl.scatter(call.in, call.out, call.count, nccl_type(call.type), root, member.comm, stream);
  }
  NcclExchange exchange(nccl, member, call, stream);
  for (int peer = 0; peer < member.ranks && member.rank == root; ++peer) exchange.send(peer, peer);
  exchange.receive(0, root);
  return exchange.end();
}

// Parameters of the lambdas below: n NCCL, m its member, c call, s stream.
const std::array kBenchmarks{
    Benchmark(Collective::all_reduce, kTwice, nccl_all_reduce, true),
    Benchmark(
        Collective::all_gather, kOthersShare,
        [](const Nccl& n, const NcclMember& m, const BenchCall& c, NcclStream s) {
          return n.all_gather(c.in, c.out, c.count, nccl_type(c.type), m.comm, s);
        },
        true),
    Benchmark(
        Collective::reduce_scatter, kOthersShare,
        [](const Nccl& n, const NcclMember& m, const BenchCall& c, NcclStream s) {
          return n.reduce_scatter(c.in, c.out, c.count, nccl_type(c.type), nccl_op(c.op), m.comm, s);
        },
        true),
    Benchmark(Collective::broadcast, kOnce,
              [](const Nccl& n, const NcclMember& m, const BenchCall& c, NcclStream s) {
                return n.broadcast(c.in, c.out, c.count, nccl_type(c.type), c.root.value, m.comm, s);
              }),
    Benchmark(Collective::reduce, kOnce,
              [](const Nccl& n, const NcclMember& m, const BenchCall& c, NcclStream s) {
                return n.reduce(c.in, c.out, c.count, nccl_type(c.type), nccl_op(c.op), c.root.value, m.comm,
                                s);
              }),
    Benchmark(Collective::all_to_all, kOthersShare, nccl_all_to_all),
    Benchmark(Collective::gather, kOthersShare, nccl_gather),
    Benchmark(Collective::scatter, kOthersShare, nccl_scatter),
    Benchmark(Collective::all_to_all_v, kOthersShare, nccl_all_to_all),
    Benchmark(Collective::send, kOnce, nccl_send_recv),
    Benchmark(Collective::barrier, kOnce, nullptr),
};
constexpr std::size_t kOthers = 2;  // at the end

Side side_of(Amount amount, bool root_only) {
  return {.block_per_rank = amount == Amount::block_per_rank || amount == Amount::counted_by_rank,
          .root_only = root_only};
}

}  // namespace

Benchmark::Benchmark(Collective which, BusFactor factor, NcclCall queue, bool has_symmetric)
    : collective(which), bus_factor(factor), nccl(queue), nccl_has_symmetric(has_symmetric) {
  const CollectiveTraits& traits = traits_of(which);
  ring = which == Collective::send;
  moves_data = which != Collective::barrier;
  name = ring ? "send-recv" : traits.text;
  in = side_of(traits.in, traits.only_root_passes_in);
  out = side_of(traits.out, traits.only_root_gets_out);
  reduces = traits.reduces;
  has_algorithms = traits.has_two_shot;
}

Algorithm call_onehop(Group& group, const BenchCall& call) {
  if (call.parts > 1) return all_reduce_in_parts(group, call);
  if (call.collective == Collective::send) return pass_to_next(group, call);
  if (call.collective == Collective::all_to_all_v) return exchange_equal_blocks(group, call);
  return run(group, call);
}

std::span<const Benchmark> benchmarks() {
  return kBenchmarks;
}

std::span<const Benchmark> collectives() {
  return benchmarks().first(std::size(kBenchmarks) - kOthers);
}

const Benchmark* find_collective(std::string_view typed) {
  std::string name(typed);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto* const found = std::find_if(std::begin(kBenchmarks), std::end(kBenchmarks),
                                         [&](const Benchmark& each) { return each.name == name; });
  return found != std::end(kBenchmarks) ? found : nullptr;
}

}  // namespace onehop::cli
