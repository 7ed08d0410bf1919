// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"
#include "group/messages.h"

namespace {

using namespace onehop;

/// Accepted input encodes to bytes that are accepted again and encode to themselves. The first encoding may
/// differ from the input only in the sender's library version and in flags with several representations.
template <class Message>
void check(std::string_view bytes, Message (*parser)(std::string_view)) {
  const std::string once = encode(parser(bytes));
  fuzz::expect_same(once, encode(parser(once)));
}

}  // namespace

// The first byte chooses the parser, the rest is the message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0]) {
      case 's':
        check(bytes, parse_status);
        break;
      case 'n':
        check(bytes, parse_announce);
        break;
      case 'o':
        check(bytes, parse_offer);
        break;
      case 'w':
        check(bytes, parse_waiting);
        break;
      case 'a':
        check(bytes, parse_ack);
        break;
      case 'v':
        check(bytes, parse_verdict);
        break;
      case 'h':
        check(bytes, parse_mesh_hello);
        break;
      case 'm':
        check(bytes, parse_mesh_message);
        break;
      default:
        break;
    }
  } catch (const Error& error) {
    // `refused` is for another protocol version.
    if (error.code() != ErrorCode::protocol && error.code() != ErrorCode::refused)
      fuzz::finding(error.message());
  }
  return 0;
}
