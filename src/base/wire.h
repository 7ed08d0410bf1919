// SPDX-License-Identifier: Apache-2.0
// Little-endian encoding with bounds checks, shared by every wire format (see docs/wire-formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/check.h"

namespace onehop::wire {

class Writer {
 public:
  template <class T>
  requires std::is_integral_v<T> Writer& put(T value) {
    using U = std::make_unsigned_t<T>;
    auto bits = static_cast<U>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(bits & 0xff));
      if constexpr (sizeof(T) > 1) bits = static_cast<U>(bits >> 8);
    }
    return *this;
  }
  /// Writes a u32 length, then the bytes.
  Writer& put_bytes(std::string_view bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    out_.append(bytes);
    return *this;
  }
  Writer& put_raw(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  [[nodiscard]] const std::string& str() const& { return out_; }
  [[nodiscard]] std::string str() && { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads what Writer wrote. Throws Error{protocol}, which names `what` and the offset, for malformed input.
/// Never reads out of bounds, and never allocates more than the size of the input.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  template <class T>
  requires std::is_integral_v<T>
  [[nodiscard]] T get() {
    const std::string_view raw = take(sizeof(T));
    std::uint64_t bits = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) bits = (bits << 8) | static_cast<unsigned char>(raw[i]);
    return static_cast<T>(bits);
  }
  [[nodiscard]] std::string_view get_bytes(std::size_t cap) {
    const auto size = get<std::uint32_t>();
    if (size > cap) {
      fail(ErrorCode::protocol, "{}: a field of {} bytes at offset {} exceeds its limit of {}", what_, size,
           at_, cap);
    }
    return take(size);
  }
  [[nodiscard]] std::string_view get_raw(std::size_t size) { return take(size); }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size() - at_; }
  /// Throws if bytes remain: formats are extended only by a new version.
  void finish() const {
    if (remaining() != 0) fail(ErrorCode::protocol, "{}: {} unexpected bytes at the end", what_, remaining());
  }

 private:
  std::string_view take(std::size_t size) {
    if (remaining() < size) {
      fail(ErrorCode::protocol, "{}: truncated at offset {} of {} ({} more bytes needed)", what_, at_,
           bytes_.size(), size - remaining());
    }
    const std::string_view out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }

  std::string_view bytes_;
  std::string_view what_;
  std::size_t at_ = 0;
};

}  // namespace onehop::wire
