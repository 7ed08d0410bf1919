// Logging: one sink, to standard error, level from ONEHOP_LOG (trace debug info warn error off; default
// warn).
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace onehop::log {

enum class Level { trace, debug, info, warn, error };

[[nodiscard]] bool enabled(Level level);
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

}  // namespace onehop::log
