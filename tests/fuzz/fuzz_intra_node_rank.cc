// SPDX-License-Identifier: Apache-2.0
#include "collective/intra_node_rank.h"
#include "fuzz.h"

using namespace onehop;

std::vector<fuzz::Seed> fuzz::seeds() {
  IntraNodeRank host;
  host.enabled = true;
  host.buffer_bytes = 10 << 20;
  host.device = DeviceId{-1};
  IntraNodeRank gpu = host;
  gpu.allows_overlap = true;
  gpu.device = DeviceId{1};
  gpu.uuid = "GPU-0";
  gpu.name = "NVIDIA H200";
  gpu.pci_bus_id = "00000000:19:00.0";
  gpu.compute_capability = 90;
  gpu.nvlinks = {18, 0, 18, 18};
  IntraNodeRank many = gpu;
  many.allows_overlap = false;
  many.nvlinks.assign(static_cast<std::size_t>(kMaxHostRanks), 1);
  IntraNodeRank too_many = many;
  too_many.nvlinks.push_back(1);
  // Magic, version, flags.
  return {{"host", encode(host)},
          {"gpu", encode(gpu)},
          {"many_links", encode(many)},
          {"too_many_links", encode(too_many), false},
          {"unknown_flag", changed(encode(gpu), 6, 8), false},
          {"other_version", changed(encode(gpu), 4, 99), false}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  fuzz::parse([&] {
    const IntraNodeRank rank = parse_intra_node_rank(bytes);
    fuzz::expect_same(bytes, encode(rank));
    (void)intra_node_refusal({rank, rank});
    IntraNodeRank other = rank;  // with a GPU of its own, so that the links are looked at
    other.uuid += "'";
    (void)intra_node_refusal({rank, other});
  });
  return 0;
}
