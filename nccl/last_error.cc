// SPDX-License-Identifier: Apache-2.0
#include "last_error.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <string_view>

#include "base/log.h"

namespace onehop::nccl {
namespace {

/// A text with a zero byte at its end. Without a destructor: programs ask for the error until the very end of a thread and of
/// the process.
struct Text {
  std::array<char, 1024> bytes{};
  std::size_t size = 0;

  void append(std::string_view text) noexcept {
    const std::string_view fitting = text.substr(0, bytes.size() - 1 - size);
    std::ranges::copy(fitting, bytes.begin() + static_cast<std::ptrdiff_t>(size));
    size += fitting.size();
    bytes[size] = '\0';
  }
};

constinit std::mutex g_mutex;
constinit Text g_last;
constinit thread_local Text t_answer;

}  // namespace

void remember(std::string_view text) noexcept {
  const std::lock_guard lock(g_mutex);
  g_last = {};
  g_last.append(text);
}

Result fail(Result result, std::string_view text) noexcept {
  remember(text);
  try {
    log::warn("{}", text);
  } catch (...) {
    // The caller still gets the result and the text.
  }
  return result;
}

const char* last_error(const char* real) noexcept {
  const std::lock_guard lock(g_mutex);
  t_answer = g_last;
  if (real != nullptr && *real != '\0') {
    if (t_answer.size != 0) t_answer.append("; NCCL: ");
    t_answer.append(real);
  }
  return t_answer.bytes.data();
}

}  // namespace onehop::nccl
