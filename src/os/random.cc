// SPDX-License-Identifier: Apache-2.0
#include "os/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace onehop::os {

Id random_id() {
  Id id;
  // Up to 256 bytes are returned at once; the call can be interrupted only before the entropy pool is ready.
  while (::getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
    if (errno != EINTR) fail_errno(errno, "getrandom");
  }
  return id;
}

std::uint64_t random_u64() {
  const Id id = random_id();
  std::uint64_t value = 0;
  std::memcpy(&value, id.data(), sizeof value);
  return value;
}

std::string to_hex(const Id& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * id.size());
  for (const std::uint8_t byte : id) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace onehop::os
