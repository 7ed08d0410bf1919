// SPDX-License-Identifier: Apache-2.0
// The messages between the TCP store and its clients (docs/wire-formats.md, "TCP store protocol"). Encoding
// and parsing are pure functions. The parsers return views into their input and throw Error{protocol} for
// anything that the encoders do not write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "onehop/error.h"
#include "onehop/store.h"
#include "onehop/types.h"

#include "base/sha256.h"

namespace onehop::store {

inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::size_t kNonceBytes = 16;
/// Every message is a frame: its size as u32, then that many bytes.
inline constexpr std::size_t kFrameHeaderBytes = 4;
/// Limit of messages from a client that has not authenticated.
inline constexpr std::size_t kMaxHandshakeBytes = 64;
/// The size of the largest request, compare_set: operation, three lengths, a key and two values.
inline constexpr std::size_t kMaxFrameBytes = 1 + 3 * 4 + kMaxKeyBytes + 2 * kMaxValueBytes;

/// Returns kNonceBytes bytes that were never used before.
[[nodiscard]] std::string fresh_nonce();

struct ClientHello {
  std::uint16_t version = kProtocolVersion;
  std::string_view nonce = {};
};

struct ServerHello {
  std::uint16_t version = kProtocolVersion;
  bool secret_required = false;
  std::uint64_t instance = 0;  ///< random; distinguishes a restarted server from the previous one
  std::string_view nonce = {};
};

enum class Side : std::uint8_t { client, server };

/// The proof with which `side` shows that it knows the secret. It is bound to both nonces, so a recorded
/// proof cannot be reused, and to the side, so neither proof can be replayed to its sender.
[[nodiscard]] std::string proof(Side side, std::string_view secret, std::string_view client_nonce,
                                std::string_view server_nonce);

enum class Op : std::uint8_t { set = 1, get = 2, add = 3, compare_set = 4, erase = 5 };

/// The size of an operation's largest request; 0 for an unknown operation.
[[nodiscard]] std::size_t max_request_bytes(std::uint8_t op);

/// Fields that an operation does not use stay empty and are not sent.
struct Request {
  Op op = Op::get;
  std::string_view key = {};
  std::string_view value = {};     ///< set; compare_set: desired
  std::string_view expected = {};  ///< compare_set
  std::int64_t delta = 0;          ///< add
  Duration timeout{0};             ///< get: how long the server waits for the key
};

enum class ReplyKind : std::uint8_t { done = 0, value = 1, missing = 2, number = 3, error = 4 };

struct Reply {
  ReplyKind kind = ReplyKind::done;
  std::string_view bytes = {};  ///< value; error: the message
  std::int64_t number = 0;
  ErrorCode code = ErrorCode::system;  ///< error
};

[[nodiscard]] std::string encode_hello(const ClientHello& hello);
[[nodiscard]] std::string encode_hello(const ServerHello& hello);
[[nodiscard]] std::string encode_request(const Request& request);
[[nodiscard]] std::string encode_reply(const Reply& reply);

/// The frame header and the beginning of a value reply; `size` bytes of value follow separately.
[[nodiscard]] std::string encode_value_head(std::size_t size);

/// A hello of another version parses with an empty nonce, so that the caller can report both versions.
[[nodiscard]] ClientHello parse_client_hello(std::string_view bytes);
[[nodiscard]] ServerHello parse_server_hello(std::string_view bytes);
[[nodiscard]] Request parse_request(std::string_view bytes);
[[nodiscard]] Reply parse_reply(std::string_view bytes);

/// Encodes and parses the frame header of a message of `size` bytes.
[[nodiscard]] std::string encode_frame_header(std::size_t size);
[[nodiscard]] std::size_t parse_frame_header(std::string_view bytes);

}  // namespace onehop::store
