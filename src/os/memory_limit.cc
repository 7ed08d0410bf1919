// SPDX-License-Identifier: Apache-2.0
#include "os/memory_limit.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/check.h"

namespace onehop::os {
namespace {

// cgroup v1 represents "no limit" by the largest multiple of a page.
constexpr std::size_t kNoLimit = std::size_t{1} << 62;

/// A missing file sets no limit. A lack of descriptors is an error, because the file might set one.
std::ifstream open_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  const int err = errno;
  if (!file && (err == EMFILE || err == ENFILE))
    fail_errno(err, fmt::format("looking for limits in {}", path));
  return file;
}

std::string read_all(const std::string& path) {
  std::ostringstream text;
  std::ifstream file = open_file(path);
  if (file) text << file.rdbuf();
  return std::move(text).str();
}

/// Returns nullopt for a missing file and for "max".
std::optional<std::size_t> read_number(const std::string& path) {
  const std::string text = read_all(path);
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

/// Parses lines of "name value" and ignores what follows; a colon after the name is dropped.
std::map<std::string, std::size_t> read_table(const std::string& path) {
  std::map<std::string, std::size_t> table;
  std::ifstream file = open_file(path);
  std::string name;
  std::size_t value = 0;
  for (std::string rest; file >> name >> value && std::getline(file, rest);) {
    if (name.ends_with(':')) name.pop_back();
    table.emplace(name, value);
  }
  return table;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Decodes a path of mountinfo, which has spaces and similar characters as three octal digits.
std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const std::string_view digits = text.substr(i + 1, 3);
    if (text[i] == '\\' && digits.size() == 3 &&
        std::from_chars(digits.data(), digits.data() + 3, code, 8).ptr == digits.data() + 3) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

/// Maps `path` of a hierarchy to a directory, if its subtree `shown` is mounted at `point`. A path outside of
/// that subtree is not visible, so the mount point itself is used.
std::string locate(const std::string& path, const std::string& shown, const std::string& point) {
  const std::string prefix = shown == "/" ? "" : shown;
  if (path.starts_with("/..") || !path.starts_with(prefix)) return point;
  std::string rest = path.substr(prefix.size());
  if (!rest.empty() && rest.front() != '/') return point;  // "/ab" is not inside "/a"
  while (rest.ends_with('/')) rest.pop_back();
  return point + rest;
}

}  // namespace

std::vector<MemoryCgroup> parse_memory_cgroups(std::string_view cgroups, std::string_view mountinfo) {
  std::optional<std::string> v1;
  std::optional<std::string> v2;
  for (const std::string& line : split(cgroups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      v2 = line.substr(second + 1);
    } else if (has_word(controllers, "memory")) {
      v1 = line.substr(second + 1);
    }
  }
  std::vector<MemoryCgroup> found;
  for (const std::string& line : split(mountinfo, '\n')) {
    // id parent device root mount-point options [optional fields] - type source super-options
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> mount = split(std::string_view(line).substr(0, dash), ' ');
    const std::vector<std::string> system = split(std::string_view(line).substr(dash + 3), ' ');
    if (mount.size() < 5 || system.empty()) continue;
    const bool unified = system[0] == "cgroup2";
    const bool legacy = system[0] == "cgroup" && system.size() >= 3 && has_word(system[2], "memory");
    const std::optional<std::string>& path = unified ? v2 : v1;
    if ((!unified && !legacy) || !path) continue;
    // If mounted several times, use the first.
    if (std::any_of(found.begin(), found.end(), [&](const auto& each) { return each.unified == unified; }))
      continue;
    const std::string point = unescape(mount[4]);
    found.push_back(
        {.directory = locate(*path, unescape(mount[3]), point), .top = point, .unified = unified});
  }
  return found;
}

MemoryLimits::MemoryLimits(std::string root) : root_(std::move(root)) {
  for (const MemoryCgroup& cgroup : parse_memory_cgroups(read_all(root_ + "/proc/self/cgroup"),
                                                         read_all(root_ + "/proc/self/mountinfo"))) {
    std::string directory = cgroup.directory;
    while (true) {
      const std::string path = root_ + directory;
      const std::optional<std::size_t> limit =
          read_number(path + (cgroup.unified ? "/memory.max" : "/memory.limit_in_bytes"));
      if (limit && *limit < kNoLimit)
        levels_.push_back({.directory = directory, .unified = cgroup.unified, .limit = *limit});
      if (directory.size() <= cgroup.top.size()) break;
      directory.erase(directory.rfind('/'));
    }
  }
}

MemoryRoom MemoryLimits::left() const {
  MemoryRoom tightest;
  const auto machine = read_table(root_ + "/proc/meminfo");
  if (const auto at = machine.find("MemAvailable"); at != machine.end())
    tightest = {.left = at->second * 1024, .where = "the machine"};
  for (const Level& level : levels_) {
    const std::string path = root_ + level.directory;
    const std::optional<std::size_t> used =
        read_number(path + (level.unified ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!used) continue;
    auto parts = read_table(path + "/memory.stat");
    const std::string prefix = level.unified ? "" : "total_";  // v1: including child cgroups
    const std::size_t cache = parts[prefix + "inactive_file"] + parts[prefix + "active_file"] / 2;
    const std::size_t held = *used - std::min(*used, cache);
    const std::size_t left = level.limit - std::min(level.limit, held);
    if (left < tightest.left) tightest = {.left = left, .where = "cgroup " + level.directory};
  }
  return tightest;
}

}  // namespace onehop::os
