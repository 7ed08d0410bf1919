// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over the files of its corpus without libFuzzer, as a regression test.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY\n", argv[0]);
    return 2;
  }
  int replayed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    // Printed first, so that when an input crashes, its name is the last line.
    std::printf("%s\n", entry.path().filename().c_str());
    std::fflush(stdout);
    // A heap copy of exactly this size, so that AddressSanitizer detects a read past the end.
    const std::vector<std::uint8_t> exact(bytes.begin(), bytes.end());
    (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
    ++replayed;
  }
  return replayed > 0 ? 0 : 1;
}
