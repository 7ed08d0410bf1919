// SPDX-License-Identifier: Apache-2.0
// Values in memory that other processes can write.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace onehop::os {

/// A value in shared memory. A process that maps the memory can change it at any time, also between the check and
/// the use of what was read. Therefore it is only accessible as a copy for which each word is read once: check
/// the copy, and use the copy. All bytes zero is the value whose bytes are zero.
///
/// No function orders anything, and a copy may mix words of two writes. An atomic of its owner publishes the value.
template <class T>
class Untrusted {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr bool kWide = sizeof(T) % 8 == 0;
  using Word = std::conditional_t<kWide, std::uint64_t, std::uint8_t>;
  static constexpr std::size_t kWords = kWide ? sizeof(T) / 8 : sizeof(T);
  static_assert(std::atomic<Word>::is_always_lock_free && sizeof(std::atomic<Word>) == sizeof(Word));

 public:
  using Words = std::array<Word, kWords>;

  [[nodiscard]] T read() const {
    Words words;
    // relaxed: see above. Atomic, so that the compiler does not read a word again instead of keeping it.
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    return std::bit_cast<T>(words);
  }
  /// Not atomic: only the owner calls it, and readers look once the owner has published the value.
  void write(const T& value) { std::memcpy(static_cast<void*>(words_.data()), &value, sizeof value); }

  /// Whether it equals `value` in all bits that are set in kMask. Reads only the words that matter; quicker than to
  /// compare a copy, whose fields would be read in other sizes than they were written in.
  template <Words kMask>
  [[nodiscard]] bool equals(const T& value) const {
    return equals<kMask>(value, std::make_index_sequence<kWords>{});
  }

 private:
  template <Words kMask, std::size_t... i>
  [[nodiscard]] bool equals(const T& value, std::index_sequence<i...>) const {
    return (... && (kMask[i] == 0 || ((load<i>() ^ word_of<i>(value)) & kMask[i]) == 0));
  }
  template <std::size_t i>
  [[nodiscard]] Word load() const {
    return words_[i].load(std::memory_order_relaxed);  // see read()
  }
  template <std::size_t i>
  [[nodiscard]] static Word word_of(const T& value) {
    Word word;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&value) + i * sizeof word, sizeof word);
    return word;
  }

  std::array<std::atomic<Word>, kWords> words_{};
};

}  // namespace onehop::os
