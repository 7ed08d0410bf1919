// SPDX-License-Identifier: Apache-2.0
// The keys of a store in memory, used by the memory store and the TCP server. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace onehop::store {

/// Limit of all keys and values of one table together, including kEntryOverhead for each entry.
inline constexpr std::size_t kMaxTableBytes = std::size_t{256} << 20;
inline constexpr std::size_t kEntryOverhead = 128;

class KeyTable {
 public:
  /// Returns a shared value, so that a reply in transmission keeps it without a copy. Null: no such key.
  using Value = std::shared_ptr<const std::string>;

  [[nodiscard]] Value find(std::string_view key) const;
  /// The next four behave as in Store. They throw Error{out_of_resources} if the table would exceed
  /// kMaxTableBytes.
  void set(std::string_view key, std::string_view value);
  std::int64_t add(std::string_view key, std::int64_t delta);
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  bool erase(std::string_view key);

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
  };
  std::unordered_map<std::string, Value, Hash, std::equal_to<>> values_;
  std::size_t bytes_ = 0;
};

}  // namespace onehop::store
