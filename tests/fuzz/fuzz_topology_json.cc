// SPDX-License-Identifier: Apache-2.0
// Any input is a topology or Error{protocol}. Every function that prints a topology accepts it, and it equals
// the one parsed from its own JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "onehop/topology.h"

#include "fuzz.h"

std::vector<onehop::fuzz::Seed> onehop::fuzz::seeds() {
  return {};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onehop::Topology topology;
  try {
    topology = onehop::Topology::from_json({reinterpret_cast<const char*>(data), size});
  } catch (const onehop::Error& e) {
    const bool one_line = e.message().find('\n') == std::string::npos;
    if (e.code() != onehop::ErrorCode::protocol || !one_line) std::abort();
    return 0;
  }
  if (onehop::Topology::from_json(topology.to_json()) != topology) std::abort();
  if (topology.to_text().empty() || topology.to_svg().empty()) std::abort();
  onehop::fuzz::accepted = true;
  return 0;
}
