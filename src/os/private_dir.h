// SPDX-License-Identifier: Apache-2.0
// A directory nobody else can look into, gone again when its owner is.
#pragma once

#include <string>

#include "os/unique_fd.h"

namespace onehop::os {

/// A fresh directory `<runtime_base>/onehop-<uid>-<purpose>-<random>` with mode 0700, removed with its
/// content by the destructor. Its owner holds a lock on the directory itself and puts a marker file into it.
/// After a kill -9 the lock is free, and the next `create` of the same user removes what was left: of purpose
/// "group" or "channel" if nothing but the marker and a socket named "socket" is inside, of purpose "launch"
/// (the directory of `onehop launch`) with all its content if the marker is inside.
class PrivateDir {
 public:
  [[nodiscard]] static PrivateDir create(const std::string& purpose);

  PrivateDir(PrivateDir&& other) noexcept = default;
  PrivateDir& operator=(PrivateDir&& other) noexcept;
  ~PrivateDir();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  PrivateDir(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  void remove() noexcept;

  std::string path_;
  UniqueFd lock_;
};

/// Removes what such directories of this user's dead processes left under `base`: of exactly such a name,
/// mode and content, and nothing else. Returns how many.
int reclaim_stale_dirs(const std::string& base) noexcept;

}  // namespace onehop::os
