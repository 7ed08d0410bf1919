// SPDX-License-Identifier: Apache-2.0
// Template bodies of StoreExchange. Included by onehop/store.h only.
#pragma once

#include <cstring>

#include "onehop/store.h"

namespace onehop {

template <StoreValue T>
std::vector<T> StoreExchange::all_gather(const T& value, Duration timeout) {
  const std::string_view bytes(reinterpret_cast<const char*>(&value), sizeof(T));
  const std::vector<std::string> raw = all_gather_sized(bytes, sizeof(T), timeout);
  std::vector<T> out(raw.size());
  for (std::size_t i = 0; i < raw.size(); ++i) std::memcpy(&out[i], raw[i].data(), sizeof(T));
  return out;
}

template <StoreValue T>
T StoreExchange::broadcast(const T& value, Rank root, Duration timeout) {
  const std::string_view bytes(reinterpret_cast<const char*>(&value), sizeof(T));
  const std::string raw = broadcast_sized(bytes, sizeof(T), root, timeout);
  T out;
  std::memcpy(&out, raw.data(), sizeof(T));
  return out;
}

}  // namespace onehop
