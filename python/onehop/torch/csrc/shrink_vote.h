// SPDX-License-Identifier: Apache-2.0
// How the ranks that shrink a process group find out whether they want the same: each tells the others which ranks it
// keeps, and all come to the same result.
#pragma once

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace onehop_torch {

/// "1, 3"
inline std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += c10::str(text.empty() ? "" : ", ", rank);
  return text;
}

/// "rank 1", "ranks 1, 3"
inline std::string name_ranks(const std::vector<int>& ranks) {
  return c10::str(ranks.size() == 1 ? "rank " : "ranks ", list(ranks));
}

inline std::vector<int> difference(const std::vector<int>& ranks, const std::vector<int>& without) {
  std::vector<int> result;
  std::set_difference(ranks.begin(), ranks.end(), without.begin(), without.end(), std::back_inserter(result));
  return result;
}

inline bool contains(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

/// Rank r is bit r. A group has at most 64 ranks.
inline uint64_t set_of(const std::vector<int>& ranks) {
  uint64_t set = 0;
  for (const int rank : ranks) set |= uint64_t{1} << rank;
  return set;
}

inline std::vector<int> ranks_in(uint64_t set) {
  std::vector<int> ranks;
  for (int rank = 0; rank < 64; ++rank) {
    if ((set >> rank & 1) != 0) ranks.push_back(rank);
  }
  return ranks;
}

/// What a rank tells the others.
struct ShrinkVote {
  uint64_t generation = 0;  ///< calls of shrink_group that led to its process group
  uint64_t concluded = 0;   ///< its earlier votes that ended
  uint64_t kept = 0;        ///< the ranks that it does not exclude
  std::string refusal;      ///< how the last of those votes ended; empty: all agreed

  std::string encode() const {
    std::string bytes;
    for (const uint64_t word : {generation, concluded, kept}) {
      bytes.append(reinterpret_cast<const char*>(&word), sizeof(word));
    }
    return bytes + refusal;
  }
  /// Of a rank of the same version, on the same machine.
  static ShrinkVote decode(std::string_view bytes) {
    ShrinkVote vote;
    for (uint64_t* const word : {&vote.generation, &vote.concluded, &vote.kept}) {
      std::memcpy(word, bytes.data(), sizeof(*word));
      bytes.remove_prefix(sizeof(*word));
    }
    vote.refusal = bytes;
    return vote;
  }
};

/// Why the ranks `left` of a group of `size` ranks cannot go on, if the i-th of them keeps kept[i]; "" if they can.
inline std::string find_objection(int size, const std::vector<int>& left, const std::vector<uint64_t>& kept) {
  const uint64_t all = size == 64 ? ~uint64_t{0} : (uint64_t{1} << size) - 1;
  const uint64_t here = set_of(left);
  uint64_t excluded = 0;
  uint64_t missing = 0;
  for (const uint64_t each : kept) {
    excluded |= all & ~each;
    missing |= each & ~here;
  }
  if ((excluded & here) != 0) {
    std::string lists;
    std::vector<uint64_t> done;
    for (const uint64_t each : kept) {
      if (std::find(done.begin(), done.end(), each) != done.end()) continue;
      done.push_back(each);
      std::vector<int> callers;
      for (size_t i = 0; i < left.size(); ++i) {
        if (kept[i] == each) callers.push_back(left[i]);
      }
      lists +=
          c10::str(lists.empty() ? "" : "; ", "[", list(ranks_in(all & ~each)), "] on ", name_ranks(callers));
    }
    const std::vector<int> named = ranks_in(excluded & here);
    return c10::str(
        name_ranks(named), named.size() == 1 ? " is" : " are",
        " excluded, but called shrink_group as well. ranks_to_exclude is ", lists,
        ". Repeat the call with the same ranks_to_exclude on all ranks that go on, after the excluded ones "
        "have ended or called destroy_process_group");
  }
  if (missing != 0) {
    const std::vector<int> named = ranks_in(missing);
    std::vector<int> callers;
    for (size_t i = 0; i < left.size(); ++i) {
      if ((kept[i] & ~here) != 0) callers.push_back(left[i]);
    }
    return c10::str(name_ranks(named), named.size() == 1 ? " is" : " are", " gone, but not excluded",
                    callers.size() == left.size() ? "" : c10::str(" by ", name_ranks(callers)),
                    ". Repeat the call on all ranks that are left, with ranks_to_exclude=[",
                    list(ranks_in(all & ~here)), "]");
  }
  return "";
}

}  // namespace onehop_torch
