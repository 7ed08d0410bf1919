// SPDX-License-Identifier: Apache-2.0
#include "onehop/device_memory.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onehop;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::parse([&] {
    const IpcHandle handle = IpcHandle::from_bytes(bytes);
    fuzz::expect_same(bytes, handle.to_bytes());
    if (handle.bytes == 0 || handle.offset + handle.bytes < handle.offset ||
        handle.offset + handle.bytes > handle.allocation_bytes)
      fuzz::finding("a range outside its allocation");
  });
  return 0;
}
