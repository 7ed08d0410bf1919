// SPDX-License-Identifier: Apache-2.0
#include "bench/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/wire.h"

namespace onehop::cli {
namespace {

constexpr std::size_t kChunk = 4096;  // words per all_gather, which carries at most 64 KiB
constexpr std::size_t kLongestComplaint = 4096;

template <class T>
std::vector<std::vector<T>> gather_words(Group& group, const std::vector<T>& mine) {
  static_assert(sizeof(T) == 8);
  std::vector<std::vector<T>> all(static_cast<std::size_t>(group.size()));
  for (std::size_t at = 0; at < mine.size(); at += kChunk) {
    const std::size_t count = std::min(kChunk, mine.size() - at);
    const std::string_view bytes(reinterpret_cast<const char*>(&mine[at]), count * sizeof(T));
    const std::vector<std::string> chunks = group.all_gather(bytes);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (chunks.at(rank).size() != bytes.size()) {
        fail_from(Rank{static_cast<int>(rank)}, ErrorCode::protocol,
                  "rank {} sent {} bytes of samples instead of {}", rank, chunks[rank].size(), bytes.size());
      }
      all[rank].resize(at + count);
      std::memcpy(&all[rank][at], chunks[rank].data(), bytes.size());
    }
  }
  return all;
}

}  // namespace

std::vector<std::vector<double>> gather(Group& group, const std::vector<double>& mine) {
  return gather_words(group, mine);
}

std::vector<std::vector<std::uint64_t>> gather(Group& group, const std::vector<std::uint64_t>& mine) {
  return gather_words(group, mine);
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
