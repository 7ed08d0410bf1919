// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "onehop/device_memory.h"

#include "fuzz.h"

using namespace onehop;

std::vector<fuzz::Seed> fuzz::seeds() {
  IpcHandle whole;
  std::iota(whole.process.begin(), whole.process.end(), std::uint8_t{0});
  std::iota(whole.device.begin(), whole.device.end(), std::uint8_t{16});
  std::iota(whole.handle.begin(), whole.handle.end(), std::uint8_t{0});
  whole.allocation = 7;
  whole.address = 0x7f00'0000'0000;
  whole.allocation_bytes = 4 << 20;
  whole.bytes = whole.allocation_bytes;
  IpcHandle inside = whole;
  inside.offset = 4096;
  inside.bytes = 1 << 20;
  IpcHandle empty = inside;
  empty.bytes = 0;
  IpcHandle outside = whole;
  outside.offset = whole.allocation_bytes;
  outside.bytes = 1 - whole.allocation_bytes;  // offset + bytes overflows to 1
  const std::string written = inside.to_bytes();
  return {{"whole", whole.to_bytes()},
          {"inside", written},
          {"empty_range", empty.to_bytes(), false},
          {"outside", outside.to_bytes(), false},
          {"other_version", changed(written, 4, 99), false},  // after the magic
          {"truncated", written.substr(0, 100), false}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  fuzz::parse([&] {
    const IpcHandle handle = IpcHandle::from_bytes(bytes);
    fuzz::expect_same(bytes, handle.to_bytes());
    if (handle.bytes == 0 || handle.offset + handle.bytes < handle.offset ||
        handle.offset + handle.bytes > handle.allocation_bytes)
      fuzz::finding("a range outside its allocation");
  });
  return 0;
}
