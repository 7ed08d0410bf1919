#include "onehop/store.h"

#include "base/check.h"
#include "base/deadline.h"
#include "store/rules.h"

namespace onehop {

Store::~Store() = default;

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
