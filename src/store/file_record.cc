// SPDX-License-Identifier: Apache-2.0
#include "store/file_record.h"

#include "base/check.h"
#include "base/sha256.h"
#include "base/wire.h"

namespace onehop::store {
namespace {

constexpr std::uint32_t kVersion = 1;

// FNV-1a, 64 bits: detects torn and damaged files. It is no defense against forgery; the directory's mode is.
std::uint64_t checksum(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::string encode_record(const Record& record) {
  wire::Writer out;
  out.put(kRecordMagic).put(kVersion).put_bytes(record.key).put_bytes(record.value);
  const std::uint64_t sum = checksum(out.str());
  out.put(sum);
  return std::move(out).str();
}

Record parse_record(std::string_view bytes) {
  wire::Reader in(bytes, "file store record");
  if (in.get<std::uint32_t>() != kRecordMagic)
    fail(ErrorCode::protocol, "file store record: wrong magic number");
  if (const auto version = in.get<std::uint32_t>(); version != kVersion) {
    fail(ErrorCode::protocol, "file store record: version {}, this library knows version {}", version,
         kVersion);
  }
  Record record;
  record.key = in.get_bytes(kMaxKeyBytes);
  record.value = in.get_bytes(kMaxValueBytes);
  const std::string_view summed = bytes.substr(0, bytes.size() - in.remaining());
  if (in.get<std::uint64_t>() != checksum(summed))
    fail(ErrorCode::protocol, "file store record: wrong checksum");
  in.finish();
  return record;
}

std::string file_name_of(std::string_view key) {
  constexpr std::size_t kLongestName = 140;  // Linux allows 255 bytes, encrypted directories as few as 143
  std::string name = "key-";
  for (const char c : key) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_') {
      name += c;
    } else {
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    if (name.size() > kLongestName) return "hash-" + hex(sha256(key));
  }
  return name;
}

}  // namespace onehop::store
