// SPDX-License-Identifier: Apache-2.0
#include "members.h"

#include <fmt/core.h>

#include <cstddef>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace onehop::nccl {
namespace {

using RankSet = std::uint64_t;
static_assert(kMaxHostRanks <= 64);

RankSet bit(int rank) {
  return RankSet{1} << rank;
}

/// Every rank needs a store, since any of them may be the first of those that remain.
std::string id_of_this_process() {
  try {
    const UniqueId id = to_unique_id(new_address());
    return {id.bytes, UniqueId::kBytes};
  } catch (const Error& error) {
    log::info("NCCL: ncclCommShrink will not find a store in this process: {}", error.message());
    return {};
  }
}

struct Kept {
  std::mutex mutex;
  std::unordered_map<Comm, std::shared_ptr<Members>> members;
};

Kept& kept() {
  static Kept& instance = *new Kept;  // leaked, as the table of communicators is
  return instance;
}

}  // namespace

Members::Members(const Group& group, std::vector<std::string> ids)
    : rank_(group.rank().value), device_(group.device()), group_id_(group.id()), ids_(std::move(ids)) {}

std::shared_ptr<Members> Members::exchange(Group& group) {
  // One rank cannot become fewer.
  std::vector<std::string> ids(1);
  if (group.size() > 1) ids = group.all_gather(id_of_this_process());
  return std::make_shared<Members>(group, std::move(ids));
}

std::shared_ptr<Members> Members::part(const Group& part) const {
  std::vector<std::string> ids;
  for (const Rank each : part.parent_ranks()) ids.push_back(ids_[static_cast<std::size_t>(each.value)]);
  return std::make_shared<Members>(part, std::move(ids));
}

std::shared_ptr<const int> Members::take_number(std::shared_ptr<Calls> calls, std::uint64_t gone) {
  const std::lock_guard lock(calls->mutex);
  std::set<int>& taken = calls->numbers[gone];
  int number = 0;
  while (taken.contains(number)) ++number;
  taken.insert(number);
  return {new int(number), [calls, gone](const int* ended) {
            const std::lock_guard free(calls->mutex);
            const auto of_set = calls->numbers.find(gone);
            of_set->second.erase(*ended);
            if (of_set->second.empty()) calls->numbers.erase(of_set);
            delete ended;
          }};
}

Members::Rest Members::without(const int* excluded, int count) {
  const int size = static_cast<int>(ids_.size());
  require(excluded != nullptr, "excludeRanksList is NULL");
  require(count >= 1, "{} ranks are excluded", count);
  RankSet gone = 0;
  for (int i = 0; i < count; ++i) {
    const int each = excluded[i];
    require(each >= 0 && each < size, "rank {} of {} ranks is excluded", each, size);
    require(each != rank_, "rank {} makes the call that excludes it", each);
    require((gone & bit(each)) == 0, "rank {} is excluded twice", each);
    gone |= bit(each);
  }
  Rest rest{.rank = 0, .size = size - count, .address = {}, .call = {}};
  int first = 0;
  while ((gone & bit(first)) != 0) ++first;
  for (int each = 0; each < rank_; ++each) rest.rank += (gone & bit(each)) == 0 ? 1 : 0;
  const std::shared_ptr<const int> number = take_number(calls_, gone);
  const std::string& id = ids_[static_cast<std::size_t>(first)];
  if (id.empty())
    fail(ErrorCode::unsupported, "rank {}, the first of those that remain, could start no store", first);
  rest.address = parse_unique_id(id);
  rest.address.name = fmt::format("{}-{:x}-{}", group_id_, gone, *number);
  rest.call = number;
  return rest;
}

void keep_members(Comm handle, std::shared_ptr<Members> members) {
  const std::lock_guard lock(kept().mutex);
  std::swap(kept().members[handle], members);
}

std::shared_ptr<Members> members_of(Comm handle) noexcept {
  const std::lock_guard lock(kept().mutex);
  const auto found = kept().members.find(handle);
  return found != kept().members.end() ? found->second : nullptr;
}

void forget_members(Comm handle) noexcept {
  const std::lock_guard lock(kept().mutex);
  kept().members.erase(handle);
}

}  // namespace onehop::nccl
