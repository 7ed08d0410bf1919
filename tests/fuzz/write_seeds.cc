// SPDX-License-Identifier: Apache-2.0
// Adds to a fuzzer: FUZZER --write-seeds DIRECTORY writes the seeds that the target makes, for scripts/fuzz.sh.
#include <filesystem>
#include <fstream>

#include "fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::string_view((*argv)[1]) != "--write-seeds") return 0;
  const std::filesystem::path directory = (*argv)[2];
  std::filesystem::create_directories(directory);
  for (const onehop::fuzz::Seed& seed : onehop::fuzz::seeds()) {
    std::ofstream out(directory / seed.name, std::ios::binary);
    if (!out.write(seed.bytes.data(), static_cast<std::streamsize>(seed.bytes.size())).flush()) {
      std::perror((directory / seed.name).c_str());
      std::exit(1);
    }
  }
  std::exit(0);
}
