// SPDX-License-Identifier: Apache-2.0
#include "onehop/store.h"

#include "base/check.h"
#include "base/deadline.h"
#include "store/rules.h"

namespace onehop {

Store::~Store() = default;

void Store::set(std::string_view key, std::string_view value, Duration timeout) {
  store::check_key(key);
  store::check_value(key, value);
  store::check_timeout(timeout);
  do_set(key, value, timeout);
}

std::optional<std::string> Store::get_for(std::string_view key, Duration timeout) {
  store::check_key(key);
  store::check_timeout(timeout);
  return do_get_for(key, timeout);
}

std::int64_t Store::add(std::string_view key, std::int64_t delta, Duration timeout) {
  store::check_key(key);
  store::check_timeout(timeout);
  return do_add(key, delta, timeout);
}

std::string Store::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                               Duration timeout) {
  store::check_exchange(key, expected, desired);
  store::check_timeout(timeout);
  return do_compare_set(key, expected, desired, timeout);
}

bool Store::delete_key(std::string_view key, Duration timeout) {
  store::check_key(key);
  store::check_timeout(timeout);
  return do_delete_key(key, timeout);
}

std::string Store::get(std::string_view key, Duration timeout) {
  std::optional<std::string> value = get_for(key, timeout);
  if (!value) {
    fail(ErrorCode::timeout, "key {} was not set within {} ms in the {}", store::quoted(key), timeout.count(),
         describe());
  }
  return *std::move(value);
}

void Store::wait(std::span<const std::string> keys, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  for (const std::string& key : keys) {
    if (!get_for(key, deadline.left())) {
      fail(ErrorCode::timeout, "key {} was not set within {} ms in the {}", store::quoted(key),
           timeout.count(), describe());
    }
  }
}

}  // namespace onehop
