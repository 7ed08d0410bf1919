// SPDX-License-Identifier: Apache-2.0
#include "group/process.h"

#include <map>
#include <mutex>

namespace onehop {

namespace {

struct LocalOffers {
  std::mutex mutex;
  std::uint64_t last = 0;
  std::map<std::uint64_t, std::shared_ptr<Block>> blocks;
};

LocalOffers& offers() {
  static auto& instance = *new LocalOffers;  // leaked on purpose: groups may be destroyed while statics are
  return instance;
}

}  // namespace

LocalOffer::LocalOffer(std::shared_ptr<Block> block) {
  LocalOffers& all = offers();
  const std::lock_guard lock(all.mutex);
  number_ = ++all.last;
  all.blocks.emplace(number_, std::move(block));
}

LocalOffer::~LocalOffer() {
  if (number_ == 0) return;
  std::shared_ptr<Block> withdrawn;  // destroyed after the lock is released
  LocalOffers& all = offers();
  const std::lock_guard lock(all.mutex);
  const auto at = all.blocks.find(number_);
  withdrawn = std::move(at->second);
  all.blocks.erase(at);
}

std::shared_ptr<Block> LocalOffer::take(std::uint64_t number) {
  LocalOffers& all = offers();
  const std::lock_guard lock(all.mutex);
  const auto at = all.blocks.find(number);
  return at == all.blocks.end() ? nullptr : at->second;
}

}  // namespace onehop
