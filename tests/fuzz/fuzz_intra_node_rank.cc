// SPDX-License-Identifier: Apache-2.0
#include "collective/intra_node_rank.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onehop;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::parse([&] {
    const IntraNodeRank rank = parse_intra_node_rank(bytes);
    fuzz::expect_same(bytes, encode(rank));
    (void)intra_node_refusal({rank, rank});
  });
  return 0;
}
