// SPDX-License-Identifier: Apache-2.0
// What an ncclUniqueId of this library contains (docs/wire-formats.md): how the ranks find the store of the process that made
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "onehop/store.h"

#include "abi.h"

namespace onehop::nccl {

struct Address {
  std::uint16_t port = 0;   ///< of a TCP store on the loopback interface
  std::string secret;       ///< of that store: 32 hex digits
  std::string name;         ///< of the communicator: 32 hex digits
  std::string host_digest;  ///< 8 bytes: the ranks must be on the same machine

  bool operator==(const Address&) const = default;
};

[[nodiscard]] UniqueId to_unique_id(const Address& address);
/// Throws Error{protocol}, which names the field, unless to_unique_id made it.
[[nodiscard]] Address parse_unique_id(std::string_view bytes);

/// An address of a new communicator. The first call in a process starts a store, which runs until the process ends.
[[nodiscard]] Address new_address();
/// Writes the address behind the bytes of NCCL's id, if NCCL left enough of them zero. Returns whether it did.
bool append_address(UniqueId& id, const Address& address);
/// The address that append_address wrote; nullopt if there is none. It stays in the id: NCCL ignores it, but takes ranks with
/// different bytes for such of different machines, and there may be ranks without this library.
[[nodiscard]] std::optional<Address> find_address(const UniqueId& id);

/// Connects to the store. Throws Error{unsupported} on another machine than the one on which the id was made.
[[nodiscard]] std::shared_ptr<Store> open_store(const Address& address, Duration timeout = kDefaultTimeout);

}  // namespace onehop::nccl
