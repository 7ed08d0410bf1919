// SPDX-License-Identifier: Apache-2.0
// Results of peer checks, kept until the machine reboots.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace onehop::peer_check {

/// The conditions under which recorded outcomes are valid. A file with another key is treated as missing.
struct RecordKey {
  std::string boot_id;
  int driver_version = 0;
  std::string onehop_version;
};

/// Whether an ordered pair passed, by the UUIDs of its devices.
using Outcomes = std::map<std::pair<std::string, std::string>, bool>;

/// $XDG_CACHE_HOME/onehop/peers-<boot id>, or the same below ~/.cache. Empty when neither variable holds an
/// absolute path; then nothing is recorded.
[[nodiscard]] std::string record_path(const std::string& boot_id);

/// The outcomes in the file. None if the file is missing, damaged, for another key, or writable by another
/// user. Never throws because of the file's state.
[[nodiscard]] Outcomes read_record(const std::string& path, const RecordKey& key);

/// Adds `outcomes` to those in the file; a new outcome of a pair replaces the old one. Readers see either the
/// old file or the new one, mode 0600. If writing fails, logs the reason and returns false; the next process
/// then checks again.
bool write_record(const std::string& path, const RecordKey& key, const Outcomes& outcomes);

/// The outcomes that this user's file has for this boot, driver and version of onehop. Throws the same errors
/// as peers_verified().
[[nodiscard]] Outcomes recorded_outcomes();

/// The file's text. `decode` returns nothing for any text that `encode` cannot have written with this key.
[[nodiscard]] std::string encode(const RecordKey& key, const Outcomes& outcomes);
[[nodiscard]] Outcomes decode(const std::string& text, const RecordKey& key);

}  // namespace onehop::peer_check
