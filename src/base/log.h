// SPDX-License-Identifier: Apache-2.0
// Logging: one sink, to standard error, level from ONEHOP_LOG (trace debug info warn error off; default
// warn). A level that is off costs one relaxed load and a branch.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <string_view>
#include <utility>

namespace onehop::log {

enum class Level { trace, debug, info, warn, error, off };

namespace detail {
/// Levels below this are off. No level is off until ONEHOP_LOG has been read.
inline std::atomic<Level> g_threshold{Level::trace};
/// Reads ONEHOP_LOG on the first call.
[[nodiscard]] bool is_enabled(Level level);
}  // namespace detail

/// Thread-safe, like all functions of this header.
[[nodiscard]] inline bool enabled(Level level) {
  // relaxed: nothing else is published with the threshold, and reading the variable twice is harmless.
  if (level < detail::g_threshold.load(std::memory_order_relaxed)) [[likely]]
    return false;
  return detail::is_enabled(level);
}
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warn)) write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace onehop::log
