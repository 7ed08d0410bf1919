// SPDX-License-Identifier: Apache-2.0
// A private directory that lives as long as one launch.
#pragma once

#include <filesystem>
#include <string>

#include "fd.h"

namespace onehop::cli {

/// `<env::runtime_base()>/onehop-<uid>-launch-XXXXXX`: random name, mode 0700, removed by the destructor. Its
/// owner holds a lock on the directory itself for as long as it lives, which is how directories that a killed
/// launcher left behind are told from those in use, and puts a marker file into it. Making a new one removes
/// what killed launchers left: of exactly such a name and mode, with the marker inside or empty.
class ScratchDir {
 public:
  ScratchDir();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Fd lock_;
};

}  // namespace onehop::cli
