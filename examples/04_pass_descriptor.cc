// SPDX-License-Identifier: Apache-2.0
// Passes file descriptors between ranks: of memory, files, pipes, or anything else that has one.
//   1. Rank 0 creates an anonymous file and broadcasts it; the others read its contents.
//   2. Every rank creates a pipe and passes its write end to all; then every rank writes to all pipes.
//
//   onehop launch -n 4 -- ./pass_descriptor
#include <fcntl.h>
#include <onehop/onehop.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace {

constexpr std::string_view kText = "written by rank 0 into a file without a name";

long check(long result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

}  // namespace

int main() {
  onehop::Group group = onehop::Group::from_env();
  onehop::IpcChannel& channel = group.channel();
  const int rank = group.rank().value;
  const onehop::Rank root{0};

  int file = -1;
  if (rank == 0) {
    file = static_cast<int>(check(::memfd_create("example", MFD_CLOEXEC), "memfd_create"));
    check(::pwrite(file, kText.data(), kText.size(), 0), "pwrite");
  }
  file = channel.broadcast_fds(file, root);  // root keeps its own; all others own a new descriptor
  std::array<char, 100> bytes{};
  const auto got = static_cast<std::size_t>(check(::pread(file, bytes.data(), bytes.size(), 0), "pread"));
  bool right = std::string_view(bytes.data(), got) == kText;
  ::close(file);

  std::array<int, 2> pipe{};
  check(::pipe2(pipe.data(), O_CLOEXEC), "pipe2");
  const std::vector<int> write_ends = channel.all_gather_fds(pipe[1]);  // the own slot is the own descriptor
  const char letter = static_cast<char>('a' + rank % 26);
  for (const int write_end : write_ends) {
    check(::write(write_end, &letter, 1), "write");
    ::close(write_end);
  }
  // read() returns 0 once every rank has written its letter and closed its copy.
  int letters = 0;
  while (check(::read(pipe[0], bytes.data(), 1), "read") == 1) ++letters;
  ::close(pipe[0]);
  right = right && letters == group.size();

  std::printf("rank %d: read %zu bytes of rank 0's file and %d letters from %d ranks\n", rank, got, letters,
              group.size());
  return right ? 0 : 1;
}
