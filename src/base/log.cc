#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "base/env.h"

namespace onehop::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::trace:
      return spdlog::level::trace;
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  // A logger of our own, never spdlog's registry: a host program may use spdlog too. Leaked on purpose, so
  // that threads which still log while statics are destroyed find it alive.
  static spdlog::logger& instance = *[] {
    auto* made = new spdlog::logger("onehop", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %^%l%$ onehop[%P] %v");
    const std::string wanted = env::get("ONEHOP_LOG").value_or("warn");
    const spdlog::level::level_enum level = spdlog::level::from_str(wanted);
    const bool unknown = level == spdlog::level::off && wanted != "off";
    made->set_level(unknown ? spdlog::level::warn : level);
    if (unknown)
      made->warn("ONEHOP_LOG='{}' is not one of trace debug info warn error off; using warn", wanted);
    return made;
  }();
  return instance;
}

}  // namespace

bool enabled(Level level) {
  return logger().should_log(to_spdlog(level));
}

void write(Level level, std::string_view message) {
  logger().log(to_spdlog(level), message);
}

}  // namespace onehop::log
