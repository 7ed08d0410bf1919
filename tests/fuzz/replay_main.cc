// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over its seeds without libFuzzer, as a regression test. Each must be accepted or refused as it
// says, so that a seed that has become outdated fails the test.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using onehop::fuzz::Seed;

int replayed = 0;
int failures = 0;

void replay(const Seed& seed) {
  // Printed first, so that when an input crashes, its name is the last line.
  std::printf("%s\n", seed.name.c_str());
  std::fflush(stdout);
  // A heap copy of exactly this size, so that AddressSanitizer detects a read past the end.
  const std::vector<std::uint8_t> exact(seed.bytes.begin(), seed.bytes.end());
  onehop::fuzz::accepted = false;
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
  ++replayed;
  if (onehop::fuzz::accepted == seed.accepted) return;
  ++failures;
  std::fprintf(stderr, "%s: it is %s, and must be %s\n", seed.name.c_str(),
               seed.accepted ? "refused" : "accepted", seed.accepted ? "accepted" : "refused");
}

void replay_files(const std::filesystem::path& corpus) {
  for (const auto& folder : std::filesystem::directory_iterator(corpus)) {
    const std::string says = folder.path().filename();
    if (!folder.is_directory() || (says != "accepted" && says != "refused")) {
      ++failures;
      std::fprintf(stderr, "%s: seeds are in the folders 'accepted' and 'refused'\n", folder.path().c_str());
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      replay({says + "/" + entry.path().filename().string(), std::move(bytes), says == "accepted"});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY\n", argv[0]);
    return 2;
  }
  for (const Seed& seed : onehop::fuzz::seeds()) replay(seed);
  if (std::filesystem::is_directory(argv[1])) replay_files(argv[1]);
  return replayed > 0 && failures == 0 ? 0 : 1;
}
