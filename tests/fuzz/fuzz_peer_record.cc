// SPDX-License-Identifier: Apache-2.0
// Any text is a record of peer checks, which encodes back to itself, or none.
#include <fmt/core.h>

#include "backend/peer_record.h"
#include "base/sha256.h"
#include "fuzz.h"

namespace {

using namespace onehop;

const peer_check::RecordKey kKey{.boot_id = "b00t", .driver_version = 13000, .onehop_version = "0.1.0"};

bool is_record(const std::string& text) {
  const peer_check::Outcomes outcomes = peer_check::decode(text, kKey);
  const bool same = peer_check::encode(kKey, outcomes) == text;
  if (!same && !outcomes.empty()) fuzz::finding("outcomes of a text that they do not encode to");
  return same;
}

}  // namespace

std::vector<onehop::fuzz::Seed> onehop::fuzz::seeds() {
  const std::string none = peer_check::encode(kKey, {});
  const std::string two =
      peer_check::encode(kKey, {{{"GPU-3a1f", "GPU-90c2"}, true}, {{"GPU-90c2", "GPU-3a1f"}, false}});
  peer_check::RecordKey other = kKey;
  other.boot_id = "earlier";
  return {{"none", none},
          {"two", two},
          {"wrong_checksum", changed(two, two.size() - 2, two[two.size() - 2] ^ 1), false},
          {"without_checksum", two.substr(0, two.find("sha256")), false},
          {"of_another_boot", peer_check::encode(other, {}), false},
          {"empty", "", false}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::view(data, size));
  fuzz::accepted = is_record(text);
  // The checksum keeps the fuzzer from the lines, so it also reaches them through one that is valid.
  (void)is_record(text + fmt::format("sha256 {}\n", hex(sha256(text))));
  return 0;
}
