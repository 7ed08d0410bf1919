// SPDX-License-Identifier: Apache-2.0
#include "backend/peer_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "base/sha256.h"
#include "os/random.h"
#include "os/unique_fd.h"

namespace onehop::peer_check {
namespace {

constexpr std::size_t kLargestFile = 1u << 20;  // 64 devices make 4032 lines of 86 bytes

std::string header(const RecordKey& key) {
  return fmt::format("onehop peers 1 {} {} {}\n", key.boot_id, key.driver_version, key.onehop_version);
}

/// The file's text, if it is a regular file that only this user can have written.
std::optional<std::string> read_own_file(const std::string& path) {
  // O_NONBLOCK: opening must not block if the path is a pipe.
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return std::nullopt;
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    log::debug("{} is not a file that only this user writes; ignored", path);
    return std::nullopt;
  }
  std::string text(kLargestFile + 1, '\0');
  std::size_t used = 0;
  while (used < text.size()) {
    const ::ssize_t got = ::read(file.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  if (used > kLargestFile) return std::nullopt;
  text.resize(used);
  return text;
}

void write_all(const os::UniqueFd& file, const std::string& text, const std::string& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ::ssize_t put = ::write(file.get(), text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno(errno, fmt::format("writing {}", path));
    done += static_cast<std::size_t>(put);
  }
}

/// Creates the directory and its parents. Those created here are private to the user.
void make_directory(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  const int err = errno;
  if (err != ENOENT || !path.has_relative_path()) fail_errno(err, fmt::format("creating {}", path.string()));
  make_directory(path.parent_path());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail_errno(errno, fmt::format("creating {}", path.string()));
  }
}

void replace_file(const std::string& path, const std::string& text) {
  make_directory(std::filesystem::path(path).parent_path());
  const std::string fresh = fmt::format("{}.{}", path, os::to_hex(os::random_id()));
  try {
    os::UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) fail_errno(errno, fmt::format("creating {}", fresh));
    write_all(file, text, fresh);
    file.reset();
    if (::rename(fresh.c_str(), path.c_str()) != 0) fail_errno(errno, fmt::format("replacing {}", path));
  } catch (...) {
    (void)::unlink(fresh.c_str());
    throw;
  }
}

}  // namespace

std::string record_path(const std::string& boot_id) {
  // The XDG specification tells us to ignore relative paths.
  const auto absolute = [](const char* variable) {
    const std::optional<std::string> value = env::get(variable);
    return value && value->starts_with('/') ? *value : std::string{};
  };
  std::string base = absolute("XDG_CACHE_HOME");
  if (base.empty()) {
    const std::string home = absolute("HOME");
    if (home.empty()) return {};
    base = home + "/.cache";
  }
  return fmt::format("{}/onehop/peers-{}", base, boot_id);
}

std::string encode(const RecordKey& key, const Outcomes& outcomes) {
  std::string text = header(key);
  for (const auto& [pair, passed] : outcomes) {
    text += fmt::format("{} {} {}\n", pair.first, pair.second, passed ? "ok" : "failed");
  }
  return text + fmt::format("sha256 {}\n", hex(sha256(text)));
}

Outcomes decode(const std::string& text, const RecordKey& key) {
  Outcomes outcomes;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string from;
    std::string to;
    std::string outcome;
    words >> from >> to >> outcome;
    if (from != "sha256") outcomes[{from, to}] = outcome == "ok";
  }
  // Encoding again detects any damage, including a wrong order or checksum.
  return encode(key, outcomes) == text ? outcomes : Outcomes{};
}

Outcomes read_record(const std::string& path, const RecordKey& key) {
  if (path.empty()) return {};
  const std::optional<std::string> text = read_own_file(path);
  return text ? decode(*text, key) : Outcomes{};
}

bool write_record(const std::string& path, const RecordKey& key, const Outcomes& outcomes) {
  if (path.empty()) return false;
  try {
    Outcomes all = read_record(path, key);
    for (const auto& [pair, passed] : outcomes) all[pair] = passed;
    replace_file(path, encode(key, all));
    return true;
  } catch (const Error& error) {
    log::debug("the outcome of the peer check is not kept: {}", error.message());
    return false;
  }
}

}  // namespace onehop::peer_check
