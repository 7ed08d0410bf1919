// SPDX-License-Identifier: Apache-2.0
#include "store/rules.h"

#include <charconv>

#include "onehop/store.h"

#include "base/check.h"
#include "base/deadline.h"

namespace onehop::store {

void check_key(std::string_view key) {
  require(key.size() <= kMaxKeyBytes, "the key {} has {} bytes, a store takes at most {}", quoted(key),
          key.size(), kMaxKeyBytes);
}

void check_value(std::string_view key, std::string_view value) {
  require(value.size() <= kMaxValueBytes, "the value for key {} has {} bytes, a store takes at most {}",
          quoted(key), value.size(), kMaxValueBytes);
}

void check_exchange(std::string_view key, std::string_view expected, std::string_view desired) {
  check_key(key);
  check_value(key, expected);
  check_value(key, desired);
}

void check_timeout(Duration timeout) {
  (void)Deadline::after(timeout);
}

void fail_expired(std::string_view operation, std::string_view key, Duration timeout, std::string_view store,
                  std::string_view why) {
  fail(ErrorCode::timeout, "{} of key {} did not end within {} ms in the {}: {}", operation, quoted(key),
       timeout.count(), store, why);
}

std::int64_t add_to_counter(std::string_view key, std::optional<std::string_view> current,
                            std::int64_t delta) {
  std::int64_t value = 0;
  if (current) {
    const char* end = current->data() + current->size();
    const auto [stop, error] = std::from_chars(current->data(), end, value);
    require(error == std::errc{} && stop == end,
            "cannot add to key {}: it holds {}, which is not a 64-bit decimal integer", quoted(key),
            quoted(*current));
  }
  std::int64_t sum = 0;
  require(!__builtin_add_overflow(value, delta, &sum), "adding {} to key {} overflows its 64-bit value {}",
          delta, quoted(key), value);
  return sum;
}

bool exchange_allowed(std::optional<std::string_view> current, std::string_view expected) {
  return current ? *current == expected : expected.empty();
}

std::string quoted(std::string_view bytes) {
  constexpr std::size_t kShown = 96;
  std::string out = "'";
  for (const char c : bytes.substr(0, kShown)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  out += bytes.size() > kShown ? "...'" : "'";
  return out;
}

}  // namespace onehop::store
