// SPDX-License-Identifier: Apache-2.0
// The boundary between C++ and C. Exceptions become status codes here and nowhere else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "onehop/c_api.h"
#include "onehop/error.h"
#include "onehop/types.h"

#include "base/check.h"

namespace onehop::c_api {

/// Records the exception being handled as this thread's last error and returns its code. Call only inside a
/// handler.
[[nodiscard]] onehop_status_t record_current_exception() noexcept;

/// The status that belongs to the message of onehop_last_error on this thread; ONEHOP_OK before the first
/// error.
[[nodiscard]] onehop_status_t last_error_status() noexcept;

/// Runs the body of an entry point.
template <class Body>
[[nodiscard]] onehop_status_t guard(Body&& body) noexcept {
  try {
    body();
    return ONEHOP_OK;
  } catch (...) {
    return record_current_exception();
  }
}

/// Like guard, for getters that can report an error only by their result.
template <class T, class Body>
[[nodiscard]] T guard_or(T fallback, Body&& body) noexcept {
  T result = fallback;
  const onehop_status_t status = guard([&] { result = body(); });
  return status == ONEHOP_OK ? result : fallback;
}

/// Converts a status that a caller's function returned, which must not be ONEHOP_OK.
inline ErrorCode to_error_code(onehop_status_t status) {
  const bool known = status >= ONEHOP_ERROR_INVALID_ARGUMENT && status <= ONEHOP_ERROR_DRIVER;
  return known ? static_cast<ErrorCode>(status) : ErrorCode::system;
}

/// Returns `*pointer`, or throws Error{invalid_argument} that names the parameter.
template <class T>
T& deref(T* pointer, std::string_view name) {
  require(pointer != nullptr, "{} must not be NULL", name);
  return *pointer;
}

/// The body of an entry point with one result, which `make` returns: a new handle or a copy of a text that the caller then
/// owns, or a number. Checks first that there is a place for it, so that nothing is made that nobody could release.
template <class T, class Make>
[[nodiscard]] onehop_status_t produce(T* result, std::string_view name, Make&& make) noexcept {
  return guard([&] {
    T& out = deref(result, name);
    out = make();
  });
}

inline const char* text(const char* pointer, std::string_view name) {
  require(pointer != nullptr, "{} must not be NULL", name);
  return pointer;
}

inline std::string_view bytes(const void* pointer, std::size_t size, std::string_view name) {
  require(pointer != nullptr || size == 0, "{} must not be NULL when it has {} bytes", name, size);
  return {static_cast<const char*>(pointer), size};
}

/// Checks an array of the caller's, which may be NULL if it has no entries. Refuses an impossible array
/// without reading it.
inline void require_array(const void* entries, std::size_t count, std::string_view name,
                          std::string_view count_name) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  require(entries != nullptr || count == 0, "{} must not be NULL when {} is {}", name, count_name, count);
  require(count <= kMost, "{} {} is more than {}", count_name, count, kMost);
}

inline Duration timeout(std::int64_t milliseconds, Duration fallback) {
  if (milliseconds == ONEHOP_TIMEOUT_DEFAULT) return fallback;
  require(milliseconds >= 0, "a timeout must be ONEHOP_TIMEOUT_DEFAULT or at least 0 ms, got {} ms",
          milliseconds);
  return Duration{milliseconds};
}

/// A NUL-terminated copy for the caller, which is freed with onehop_free.
[[nodiscard]] char* copy_out(std::string_view value);

/// The same, with its size.
inline void hand_out(std::string_view value, char*& data, std::size_t& size) {
  data = copy_out(value);
  size = value.size();
}

/// Larger than any structure.
inline constexpr std::size_t kMaxStructBytes = 4096;

/// Writes the defaults of an options structure, up to the size of the caller's version. A size that fits no
/// version results in a structure that calls refuse.
template <class T>
void init_options(T* options, std::size_t size, T defaults) noexcept {
  if (options == nullptr || size < sizeof(std::size_t)) return;
  if (size > kMaxStructBytes) {
    options->size = 0;
    return;
  }
  std::memset(options, 0, size);
  defaults.size = size;
  std::memcpy(options, &defaults, std::min(size, sizeof(T)));
}

inline void require_struct_size(std::size_t size, std::string_view name) {
  require(size >= sizeof(std::size_t) && size <= kMaxStructBytes,
          "{}->size is {}; fill the structure with its _init function", name, size);
}

/// Copies a result into the caller's structure. A shorter structure of an older caller gets the fields that
/// fit. In a longer one of a newer caller, the rest is zeroed.
template <class T>
void write_result(T& result, std::string_view name, T value) {
  const std::size_t size = result.size;
  require_struct_size(size, name);
  value.size = size;
  std::memcpy(&result, &value, std::min(size, sizeof(T)));
  if (size > sizeof(T))
    std::memset(reinterpret_cast<unsigned char*>(&result) + sizeof(T), 0, size - sizeof(T));
}

/// The body of an entry point whose result is a structure: `describe` sets its fields.
template <class T, class Describe>
[[nodiscard]] onehop_status_t answer(T* result, std::string_view name, Describe&& describe) noexcept {
  return guard([&] {
    T out{};
    describe(out);
    write_result(deref(result, name), name, out);
  });
}

/// The caller's structure, as this version knows it. A shorter one of an older caller gets defaults for
/// missing fields. A longer one of a newer caller must be zero beyond this version's fields.
template <class T>
T read_options(const T* options, std::string_view name, const T& defaults) {
  const std::size_t size = deref(options, name).size;
  require_struct_size(size, name);
  const auto* raw = reinterpret_cast<const unsigned char*>(options);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (raw[i] != 0) {
      fail(ErrorCode::unsupported, "{} sets a field that onehop {} does not know (at byte {})", name,
           ONEHOP_VERSION_STRING, i);
    }
  }
  T known = defaults;
  std::memcpy(&known, raw, std::min(size, sizeof(T)));
  return known;
}

}  // namespace onehop::c_api
