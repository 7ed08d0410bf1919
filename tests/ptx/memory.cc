// SPDX-License-Identifier: Apache-2.0
#include "ptx/memory.h"

#include <fmt/core.h>

#include <iterator>
#include <stdexcept>
#include <utility>

namespace onehop::ptx {

void Memory::add(const void* data, std::size_t bytes, bool writable, std::string name) {
  regions_[reinterpret_cast<std::uintptr_t>(data)] = {bytes, writable, std::move(name)};
  last_bytes_ = 0;
}

void Memory::remove(const void* data) {
  regions_.erase(reinterpret_cast<std::uintptr_t>(data));
  last_bytes_ = 0;
}

std::uint64_t Memory::visits(const void* data) const {
  return regions_.at(reinterpret_cast<std::uintptr_t>(data)).visits;
}

void Memory::look_up(std::uintptr_t at, std::size_t bytes, std::size_t width, bool writes) const {
  const char* const what = writes ? "write" : "read";
  if (at % width != 0)
    throw std::runtime_error(fmt::format("misaligned {} of {} bytes at {:#x}", what, width, at));
  auto next = regions_.upper_bound(at);
  if (next != regions_.begin()) {
    const auto& [begin, region] = *std::prev(next);
    if (at - begin < region.bytes && at + bytes <= begin + region.bytes) {
      if (writes && !region.writable)
        throw std::runtime_error(fmt::format("write to byte {} of {}", at - begin, region.name));
      ++region.visits;
      last_begin_ = begin;
      last_bytes_ = region.bytes;
      last_writable_ = region.writable;
      return;
    }
  }
  std::string near;
  if (next != regions_.begin()) {
    const auto& [begin, region] = *std::prev(next);
    near = fmt::format("; {} bytes after the end of {}", at - begin - region.bytes, region.name);
  }
  if (next != regions_.end())
    near += fmt::format("; {} bytes before {}", next->first - at, next->second.name);
  throw std::runtime_error(
      fmt::format("{} of {} bytes at {:#x}, which is nobody's memory{}", what, bytes, at, near));
}

}  // namespace onehop::ptx
