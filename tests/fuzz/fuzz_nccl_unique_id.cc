// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"
#include "unique_id.h"

using namespace onehop;

std::vector<fuzz::Seed> fuzz::seeds() {
  const nccl::Address address{.port = 40'001,
                              .secret = "00112233445566778899aabbccddeeff",
                              .name = "ffeeddccbbaa99887766554433221100",
                              .host_digest = std::string("\x01\0\xff\x80\x7f\0\0\x02", 8)};
  const nccl::UniqueId id = nccl::to_unique_id(address);
  const std::string written(id.bytes, nccl::UniqueId::kBytes);
  return {{"written", written},
          {"of_nccl", changed(written, 0, 1), false},
          {"other_version", changed(written, 4, 99), false},
          {"no_digit", changed(written, 20, 'x'), false},
          {"more_at_the_end", changed(written, 127, 1), false},
          {"truncated", written.substr(0, 50), false}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  fuzz::parse([&] {
    const nccl::Address address = nccl::parse_unique_id(bytes);
    if (bytes.size() == nccl::UniqueId::kBytes) {
      const nccl::UniqueId id = nccl::to_unique_id(address);
      fuzz::expect_same(bytes, std::string(id.bytes, nccl::UniqueId::kBytes));
    }
  });
  return 0;
}
