// SPDX-License-Identifier: Apache-2.0
// The content of one file of the file store (docs/wire-formats.md, "File store records") and its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "onehop/store.h"

namespace onehop::store {

inline constexpr std::uint32_t kRecordMagic = 0x5246'484f;  // "OHFR" in file order
/// Size of magic, version, two lengths and the checksum: a record without its key and value.
inline constexpr std::size_t kRecordOverhead = 4 + 4 + 4 + 4 + 8;
inline constexpr std::size_t kMaxRecordBytes = kRecordOverhead + kMaxKeyBytes + kMaxValueBytes;

struct Record {
  std::string_view key;
  std::string_view value;
};

[[nodiscard]] std::string encode_record(const Record& record);
/// Parses a record. The result points into `bytes`. Throws Error{protocol} for anything that encode_record
/// does not write.
[[nodiscard]] Record parse_record(std::string_view bytes);

/// Maps a key to a portable file name, unique per key. Letters, digits, '-' and '_' are kept; other bytes
/// become %XX. If the name would be too long for a file system, it is the key's SHA-256 instead.
[[nodiscard]] std::string file_name_of(std::string_view key);

}  // namespace onehop::store
