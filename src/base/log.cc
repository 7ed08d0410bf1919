// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "base/env.h"

namespace onehop::log {
namespace {

struct Name {
  std::string_view text;
  Level level;
  spdlog::level::level_enum spdlog_level;
};
constexpr Name kNames[] = {
    {"trace", Level::trace, spdlog::level::trace}, {"debug", Level::debug, spdlog::level::debug},
    {"info", Level::info, spdlog::level::info},    {"warn", Level::warn, spdlog::level::warn},
    {"error", Level::error, spdlog::level::err},   {"off", Level::off, spdlog::level::off},
    {"warning", Level::warn, spdlog::level::warn},  // as lines of the log say
};

Level wanted_level() {
  const std::string wanted = env::get("ONEHOP_LOG").value_or("warn");
  for (const Name& each : kNames) {
    if (each.text == wanted) return each.level;
  }
  return Level::warn;  // check_environment() reports the unknown value
}

spdlog::logger& logger() {
  // A private logger rather than one in spdlog's registry, because a host program may use spdlog too.
  // Deliberately leaked, so that threads that log during static destruction find it alive.
  static spdlog::logger& instance = *[] {
    auto* made = new spdlog::logger("onehop", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %^%l%$ onehop[%P] %v");
    made->set_level(spdlog::level::trace);  // enabled() filters
    detail::g_threshold.store(wanted_level(), std::memory_order_relaxed);
    return made;
  }();
  return instance;
}

}  // namespace

bool detail::is_enabled(Level level) {
  (void)logger();
  return level >= g_threshold.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view message) {
  if (enabled(level)) logger().log(kNames[static_cast<std::size_t>(level)].spdlog_level, message);
}

}  // namespace onehop::log
