// SPDX-License-Identifier: Apache-2.0
#include "origin.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <string_view>

#include "onehop/version.h"

#include "base/check.h"
#include "commit.h"
#include "os/host_id.h"
#include "os/processors.h"

namespace onehop::cli {
namespace {

std::string& command_line() {
  static std::string text = "onehop";
  return text;
}

std::string quoted(std::string_view word) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_=+,.:/@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  std::string out = "'";
  for (const char c : printable(word)) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

Origin find_origin() {
  Origin origin;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::array<char, 32> date{};
  if (::gmtime_r(&now, &utc) != nullptr && std::strftime(date.data(), date.size(), "%FT%TZ", &utc) != 0)
    origin.date = date.data();
  origin.host = printable(os::hostname());
  origin.command = command_line();
  return origin;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    // "model name" on x86. Arm kernels have no such line; some boards have "Hardware".
    if (colon != std::string::npos && (line.starts_with("model name") || line.starts_with("Hardware"))) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

MachineInfo find_machine_info() {
  MachineInfo info;
  info.cpu = cpu_model();
  info.cpus = os::usable_processors().count();
  utsname names{};
  if (::uname(&names) == 0) info.kernel = fmt::format("{} {}", names.sysname, names.release);
  return info;
}

}  // namespace

void remember_command_line(int argc, char** argv) {
  // Not argv[0]: in ranks that the command starts it is /proc/self/exe.
  std::string text = "onehop";
  for (int i = 1; i < argc; ++i) text.append(1, ' ').append(quoted(argv[i]));
  command_line() = std::move(text);
}

const Origin& origin() {
  static const Origin found = find_origin();
  return found;
}

std::string describe(const Origin& origin) {
  return fmt::format("{} on {}: {}", origin.date, origin.host, origin.command);
}

const MachineInfo& machine_info() {
  static const MachineInfo info = find_machine_info();
  return info;
}

std::string build_commit() {
  return ONEHOP_COMMIT;
}

BuildInfo build_info() {
  return {std::string(version()), build_commit()};
}

std::string describe(const BuildInfo& build) {
  return fmt::format("onehop {}{}", build.version, build.commit.empty() ? "" : " (" + build.commit + ")");
}

}  // namespace onehop::cli
