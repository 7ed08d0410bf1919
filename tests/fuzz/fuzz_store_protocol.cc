// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"
#include "store/tcp_protocol.h"

// The first byte chooses the parser, the rest is the message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onehop;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  fuzz::parse([&] {
    switch (data[0]) {
      case 'q':
        fuzz::expect_same(bytes, store::encode_request(store::parse_request(bytes)));
        break;
      case 'r':
        fuzz::expect_same(bytes, store::encode_reply(store::parse_reply(bytes)));
        break;
      case 'c': {
        const store::ClientHello hello = store::parse_client_hello(bytes);
        if (hello.version == store::kProtocolVersion) fuzz::expect_same(bytes, store::encode_hello(hello));
        break;
      }
      case 's': {
        const store::ServerHello hello = store::parse_server_hello(bytes);
        if (hello.version == store::kProtocolVersion) fuzz::expect_same(bytes, store::encode_hello(hello));
        break;
      }
      case 'f':
        fuzz::expect_same(bytes, store::encode_frame_header(store::parse_frame_header(bytes)));
        break;
      default:
        break;
    }
  });
  return 0;
}
