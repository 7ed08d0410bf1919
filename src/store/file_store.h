// The file store with its lock timeout exposed, for tests.
#pragma once

#include <filesystem>
#include <memory>

#include "onehop/store.h"

namespace onehop::store {

/// As onehop::file_store; a change waits at most `lock_timeout` for other writers of the directory.
[[nodiscard]] std::shared_ptr<Store> open_file_store(const std::filesystem::path& directory,
                                                     Duration lock_timeout);

}  // namespace onehop::store
