#include "onehop/error.h"

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace onehop {

Error::Error(ErrorCode code, std::string message, Rank origin)
    : code_(code), origin_(origin), message_(std::move(message)) {}

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
  }
  return "unknown";
}

std::string errno_text(int err) {
  char buffer[256];
  // GNU strerror_r: returns the text, which may or may not be in the buffer.
  const char* text = ::strerror_r(err, buffer, sizeof buffer);
  const char* name = ::strerrorname_np(err);
  return fmt::format("{} ({})", text, name != nullptr ? name : fmt::format("errno {}", err).c_str());
}

void fail_errno(int err, const std::string& what) {
  const bool resources = err == ENOMEM || err == ENOSPC || err == EMFILE || err == ENFILE || err == EAGAIN;
  throw Error(resources ? ErrorCode::out_of_resources : ErrorCode::system,
              fmt::format("{}: {}", what, errno_text(err)));
}

}  // namespace onehop
