// SPDX-License-Identifier: Apache-2.0
// The part of memory sharing that needs no driver: names, and the byte format of handles.
#include <algorithm>

#include "onehop/device_memory.h"

#include "base/wire.h"

namespace onehop {
namespace {

constexpr std::string_view kMagic = "OHIP";
constexpr std::uint32_t kVersion = 1;
constexpr std::string_view kKindNames[] = {"host", "pinned host", "managed", "device",
                                           "VMM",  "pool",        "other"};

template <std::size_t n>
std::string_view raw(const std::array<std::uint8_t, n>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), n};
}

template <std::size_t n>
void get(wire::Reader& in, std::array<std::uint8_t, n>& bytes) {
  const std::string_view from = in.get_raw(n);
  std::copy(from.begin(), from.end(), bytes.begin());
}

}  // namespace

std::string_view to_string(MemoryKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < std::size(kKindNames) ? kKindNames[index] : "unknown";
}

std::string IpcHandle::to_bytes() const {
  wire::Writer out;
  out.put_raw(kMagic).put(kVersion).put_raw(raw(process));
  out.put(allocation).put(address).put(allocation_bytes).put(offset).put(bytes);
  out.put_raw(raw(device)).put_raw(raw(handle));
  return std::move(out).str();
}

IpcHandle IpcHandle::from_bytes(std::string_view bytes) {
  wire::Reader in(bytes, "IPC handle");
  if (in.get_raw(kMagic.size()) != kMagic) {
    fail(ErrorCode::protocol, "IPC handle: these {} bytes are not one of onehop's", bytes.size());
  }
  if (const auto version = in.get<std::uint32_t>(); version != kVersion) {
    fail(ErrorCode::protocol, "IPC handle: version {}, this onehop knows {}; use one version on all ranks",
         version, kVersion);
  }
  IpcHandle read;
  get(in, read.process);
  read.allocation = in.get<std::uint64_t>();
  read.address = in.get<std::uint64_t>();
  read.allocation_bytes = in.get<std::uint64_t>();
  read.offset = in.get<std::uint64_t>();
  read.bytes = in.get<std::uint64_t>();
  get(in, read.device);
  get(in, read.handle);
  in.finish();
  if (read.bytes == 0 || read.offset > read.allocation_bytes ||
      read.bytes > read.allocation_bytes - read.offset) {
    fail(ErrorCode::protocol, "IPC handle: {} bytes at offset {} are not within an allocation of {} bytes",
         read.bytes, read.offset, read.allocation_bytes);
  }
  return read;
}

}  // namespace onehop
