// SPDX-License-Identifier: Apache-2.0
// What peer checks found, kept until the machine is booted again.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace onehop::peer_check {

/// What an outcome holds for. Another one makes a file as good as none.
struct RecordKey {
  std::string boot_id;
  int driver_version = 0;
  std::string onehop_version;
};

/// By the UUIDs of an ordered pair: did it pass?
using Outcomes = std::map<std::pair<std::string, std::string>, bool>;

/// $XDG_CACHE_HOME/onehop/peers-<boot id>, or below ~/.cache; empty when neither variable names an absolute
/// path: then nothing is kept.
[[nodiscard]] std::string record_path(const std::string& boot_id);

/// The outcomes in the file; none when there is no file, or it is damaged, for another key, or not this
/// user's alone to write. Never throws for what the file is.
[[nodiscard]] Outcomes read_record(const std::string& path, const RecordKey& key);

/// Adds `outcomes` to those that the file has (a pair that is in both gets the new one). Others see the old
/// file or the new one, mode 0600. False, with the reason in the log, when it could not be written: the next
/// process then checks again.
bool write_record(const std::string& path, const RecordKey& key, const Outcomes& outcomes);

/// The outcomes that this user's file has for this boot, driver and version of onehop. Errors as for
/// peers_verified().
[[nodiscard]] Outcomes recorded_outcomes();

/// The file's text. `decode` gives none for anything that `encode` with this key cannot have written.
[[nodiscard]] std::string encode(const RecordKey& key, const Outcomes& outcomes);
[[nodiscard]] Outcomes decode(const std::string& text, const RecordKey& key);

}  // namespace onehop::peer_check
