// SPDX-License-Identifier: Apache-2.0
#include "onehop/error.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace onehop {
namespace {

/// Returns, for example, "raise ulimit -n, which is 256".
std::string descriptor_remedy() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "raise ulimit -n";
  return fmt::format("raise ulimit -n, which is {}", limit.rlim_cur);
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// Escapes every control character as "\x0a": messages quote text of callers, peers and files.
std::string in_one_line(std::string message) {
  if (std::none_of(message.begin(), message.end(), is_control)) return message;
  std::string out;
  for (const char c : message) {
    if (is_control(c)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Error::Error(ErrorCode code, std::string message, Rank origin)
    : code_(code), origin_(origin), message_(in_one_line(std::move(message))) {}

Error::~Error() = default;

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::peer_lost:
      return "peer_lost";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::refused:
      return "refused";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::out_of_resources:
      return "out_of_resources";
    case ErrorCode::system:
      return "system";
    case ErrorCode::protocol:
      return "protocol";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::driver:
      return "driver";
  }
  return "unknown";
}

std::string errno_text(int err) {
  char buffer[256];
  // GNU strerror_r returns the text, which is not necessarily in the buffer.
  const char* text = ::strerror_r(err, buffer, sizeof buffer);
  const char* name = ::strerrorname_np(err);
  return fmt::format("{} ({})", text, name != nullptr ? name : fmt::format("errno {}", err).c_str());
}

std::string explain_errno(int err) {
  std::string text = errno_text(err);
  switch (err) {
    case EMFILE:
      return fmt::format("out of file descriptors: {}; {}", text, descriptor_remedy());
    case ENFILE:
      return fmt::format("the machine is out of file descriptors: {}; raise the sysctl fs.file-max", text);
    case ETOOMANYREFS:
      return fmt::format("too many file descriptors were sent and not received yet: {}; {}", text,
                         descriptor_remedy());
    default:
      return text;
  }
}

void fail_errno(int err, const std::string& what) {
  const bool resources = err == ENOMEM || err == ENOSPC || err == EMFILE || err == ENFILE ||
                         err == ETOOMANYREFS || err == EAGAIN;
  throw Error(resources ? ErrorCode::out_of_resources : ErrorCode::system,
              fmt::format("{}: {}", what, explain_errno(err)));
}

}  // namespace onehop
