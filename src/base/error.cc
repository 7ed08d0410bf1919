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

/// The length of the UTF-8 character that a text begins with; 0 if it begins with a control character or with bytes that
/// are not UTF-8.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80) return 0;
  }
  // Longer forms than needed, surrogates, what is beyond U+10FFFF, and U+0080..U+009F, the C1 controls.
  const unsigned second = byte(1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f) ||
                     (first == 0xc2 && second < 0xa0);
  return wrong ? 0 : length;
}

}  // namespace

Error::Error(ErrorCode code, std::string_view message, Rank origin)
    : code_(code), origin_(origin), message_(printable(message)) {}

Error::~Error() = default;

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = printable_length(text);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

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
