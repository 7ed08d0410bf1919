// SPDX-License-Identifier: Apache-2.0
// A private directory that is removed with its owner.
#pragma once

#include <string>

#include "os/unique_fd.h"

namespace onehop::os {

/// A new directory `<runtime_base>/onehop-<uid>-<purpose>-<random>` with mode 0700, removed with its content
/// by the destructor. Its owner holds a lock on the directory and puts a marker file into it. After a kill -9
/// the lock is free, and the next `create` of the same user removes the directory: if the purpose is "group"
/// or "channel", provided it contains nothing but the marker and a socket named "socket"; if the purpose is
/// "launch" (`onehop launch`), with all its content, provided it contains the marker.
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

/// Removes such directories of this user's dead processes under `base`: those of exactly such a name, mode
/// and content, and nothing else. Returns their number.
int reclaim_stale_dirs(const std::string& base) noexcept;

}  // namespace onehop::os
