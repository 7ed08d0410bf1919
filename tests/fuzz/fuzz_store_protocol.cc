// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "fuzz.h"
#include "store/tcp_protocol.h"

using namespace onehop;

std::vector<fuzz::Seed> fuzz::seeds() {
  const std::string nonce(store::kNonceBytes, 'n');
  const std::string client = behind('c', store::encode_hello(store::ClientHello{.nonce = nonce}));
  const std::string server = behind(
      's', store::encode_hello(store::ServerHello{.secret_required = true, .instance = 7, .nonce = nonce}));
  std::vector<Seed> all = {{"client_hello", client},
                           {"server_hello", server},
                           // A server tells clients of other versions which one it has.
                           {"client_hello_of_other_version", changed(client, 5, 99)},
                           {"server_hello_of_other_version", changed(server, 5, 99)},
                           {"frame_header", behind('f', store::encode_frame_header(64))}};
  for (int op = 0; op < 256; ++op) {
    if (store::max_request_bytes(static_cast<std::uint8_t>(op)) == 0) continue;
    all.push_back(
        {fmt::format("request_{}", op), behind('q', store::encode_request({.op = static_cast<store::Op>(op),
                                                                           .key = "key",
                                                                           .value = "value",
                                                                           .expected = "old",
                                                                           .delta = -1,
                                                                           .timeout = Duration{30000}}))});
  }
  for (const store::ReplyKind kind :
       {store::ReplyKind::done, store::ReplyKind::value, store::ReplyKind::missing, store::ReplyKind::number,
        store::ReplyKind::error}) {
    const store::Reply reply{
        .kind = kind, .bytes = "no room", .number = 42, .code = ErrorCode::out_of_resources};
    all.push_back({fmt::format("reply_{}", static_cast<int>(kind)), behind('r', store::encode_reply(reply))});
  }
  return all;
}

// The first byte chooses the parser, the rest is the message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::view(data, size).substr(1);
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
        fail(ErrorCode::protocol, "no parser");
    }
  });
  return 0;
}
