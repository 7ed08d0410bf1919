// SPDX-License-Identifier: Apache-2.0
#include "store/key_table.h"

#include <optional>

#include "base/check.h"
#include "store/rules.h"

namespace onehop::store {
namespace {

std::optional<std::string_view> view(const KeyTable::Value& value) {
  return value ? std::optional<std::string_view>(*value) : std::nullopt;
}

}  // namespace

KeyTable::Value KeyTable::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : it->second;
}

void KeyTable::set(std::string_view key, std::string_view value) {
  check_key(key);
  check_value(key, value);
  const auto it = values_.find(key);
  const std::size_t before = it == values_.end() ? 0 : key.size() + it->second->size() + kEntryOverhead;
  const std::size_t after = bytes_ - before + key.size() + value.size() + kEntryOverhead;
  if (after > kMaxTableBytes) {
    fail(ErrorCode::out_of_resources,
         "no room for key {} with {} bytes: the store holds {} of at most {} bytes", quoted(key),
         value.size(), bytes_, kMaxTableBytes);
  }
  auto stored = std::make_shared<const std::string>(value);
  if (it == values_.end()) {
    values_.emplace(key, std::move(stored));
  } else {
    it->second = std::move(stored);
  }
  bytes_ = after;
}

std::int64_t KeyTable::add(std::string_view key, std::int64_t delta) {
  check_key(key);
  const Value current = find(key);
  const std::int64_t sum = add_to_counter(key, view(current), delta);
  set(key, std::to_string(sum));
  return sum;
}

std::string KeyTable::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  check_exchange(key, expected, desired);
  const Value current = find(key);
  if (exchange_allowed(view(current), expected)) {
    set(key, desired);
    return std::string(desired);
  }
  return current ? *current : std::string(expected);
}

bool KeyTable::erase(std::string_view key) {
  check_key(key);
  const auto it = values_.find(key);
  if (it == values_.end()) return false;
  bytes_ -= key.size() + it->second->size() + kEntryOverhead;
  values_.erase(it);
  return true;
}

}  // namespace onehop::store
