// SPDX-License-Identifier: Apache-2.0
#include "bench/verify.h"

#include "base/check.h"
#include "base/wire.h"

namespace onehop::cli {
namespace {

constexpr std::size_t kLongestComplaint = 4096;

}  // namespace

CheckData check_data_of(const BenchOptions& options, const Shape& shape) {
  CheckData data{.type = options.type, .ranks = options.ranks, .seed = 0x6f6e65686f70 + shape.bytes};
  data.op = options.collective->reduces ? std::optional(options.op) : std::nullopt;
  data.factor = options.factor;
  return data;
}

std::string complaint_about(const BenchOptions& options, const Shape& shape, const CheckData& data, Rank rank,
                            const std::byte* out, int threads) {
  const Benchmark& collective = *options.collective;
  if (!has_output(options, rank)) return {};
  const int blocks = collective.out.blocks(options.ranks);
  for (int block = 0; block < blocks; ++block) {
    // Of an input with a block per rank, this rank gets its own block. Block b of an output with a block per
    // rank comes from rank b, unless the root sends all.
    CheckData expected = data;
    expected.source = collective.in.root_only ? options.root.value
                      : collective.ring       ? (rank.value + options.ranks - 1) % options.ranks
                                              : block;
    expected.first = collective.in.block_per_rank ? static_cast<std::size_t>(rank.value) * shape.count : 0;
    const std::size_t before = static_cast<std::size_t>(block) * shape.count;
    const auto wrong = find_wrong(expected, out + before * size_of(options.type), shape.count, threads);
    if (!wrong) continue;
    return fmt::format("element {} of {} is {}, expected {}", before + (wrong->index - expected.first),
                       shape.out_count, wrong->got, wrong->expected);
  }
  return {};
}

std::string name_of_call(const BenchOptions& options, const Shape& shape, Algorithm algorithm) {
  return fmt::format("{} of {} bytes ({}, {})", options.collective->name, shape.bytes, type_and_op(options),
                     to_string(algorithm));
}

void agree_on_result(Group& group, const std::string& call, std::optional<std::uint64_t> hash,
                     const std::string& complaint) {
  const std::vector<std::string> findings =
      group.all_gather(wire::Writer{}.put(hash.value_or(0)).put_bytes(complaint).str());
  std::uint64_t first_hash = 0;
  for (std::size_t rank = 0; rank < findings.size(); ++rank) {
    wire::Reader reader(findings[rank], "bench finding");
    const auto other_hash = reader.get<std::uint64_t>();
    const std::string_view other_complaint = reader.get_bytes(kMaxValueBytes);
    const Rank origin{static_cast<int>(rank)};
    if (!other_complaint.empty()) {
      fail_from(origin, ErrorCode::mismatch, "wrong result: {}: rank {}: {}", call, rank, other_complaint);
    }
    if (rank == 0) first_hash = other_hash;
    if (other_hash != first_hash) {
      fail_from(origin, ErrorCode::mismatch, "wrong result: {}: ranks 0 and {} hold different bits", call,
                rank);
    }
  }
}

std::string first_complaint(Group& group, std::string_view own) {
  const std::vector<std::string> all = group.all_gather(own.substr(0, kLongestComplaint));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) return fmt::format("rank {}: {}", rank, all[rank]);
  }
  return {};
}

}  // namespace onehop::cli
