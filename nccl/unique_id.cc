// SPDX-License-Identifier: Apache-2.0
#include "unique_id.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include "onehop/group.h"

#include "base/check.h"
#include "base/sha256.h"
#include "base/wire.h"
#include "os/random.h"

namespace onehop::nccl {
namespace {

constexpr std::string_view kMagic = "OHNC";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kSecretDigits = 32;
constexpr std::size_t kNameDigits = 32;
constexpr std::size_t kHostDigestBytes = 8;
constexpr std::size_t kAddressBytes =
    kMagic.size() + sizeof kFormat + sizeof Address::port + kSecretDigits + kNameDigits + kHostDigestBytes;
static_assert(kAddressBytes <= UniqueId::kBytes);

std::string digest_of_host() {
  return sha256(host_id()).substr(0, kHostDigestBytes);
}

std::string_view digits(wire::Reader& reader, std::size_t count, std::string_view field) {
  const std::string_view text = reader.get_raw(count);
  if (text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    fail(ErrorCode::protocol, "unique id: its {} is not {} hex digits", field, count);
  return text;
}

std::string write(const Address& address) {
  wire::Writer writer;
  writer.put_raw(kMagic)
      .put(kFormat)
      .put(address.port)
      .put_raw(address.secret)
      .put_raw(address.name)
      .put_raw(address.host_digest);
  require(writer.str().size() == kAddressBytes, "unique id: {} bytes", writer.str().size());
  return std::move(writer).str();
}

/// The store of this process. Never destroyed: threads may still serve it when the process ends.
struct Server {
  pid_t process = 0;  ///< a forked child has no threads of its parent, so it needs its own
  std::string secret;
  std::unique_ptr<TcpStoreServer> server;
};

}  // namespace

UniqueId to_unique_id(const Address& address) {
  const std::string written = write(address);
  UniqueId id{};
  std::memcpy(id.bytes, written.data(), written.size());
  return id;
}

bool append_address(UniqueId& id, const Address& address) {
  const std::string written = write(address);
  char* const place = std::end(id.bytes) - written.size();
  if (std::any_of(place, std::end(id.bytes), [](char each) { return each != 0; })) return false;
  std::ranges::copy(written, place);
  return true;
}

std::optional<Address> find_address(const UniqueId& id) {
  try {
    return parse_unique_id({std::end(id.bytes) - kAddressBytes, kAddressBytes});
  } catch (const Error&) {
    return std::nullopt;
  }
}

Address parse_unique_id(std::string_view bytes) {
  wire::Reader reader(bytes, "unique id");
  if (reader.get_raw(kMagic.size()) != kMagic)
    fail(ErrorCode::protocol, "unique id: ncclGetUniqueId of libonehop_nccl did not make it (without NCCL)");
  if (const auto format = reader.get<std::uint32_t>(); format != kFormat)
    fail(ErrorCode::protocol,
         "unique id: format {}, not {}: the ranks have different versions of libonehop_nccl", format,
         kFormat);
  Address address;
  address.port = reader.get<std::uint16_t>();
  if (address.port == 0) fail(ErrorCode::protocol, "unique id: port 0");
  address.secret = digits(reader, kSecretDigits, "secret");
  address.name = digits(reader, kNameDigits, "name");
  address.host_digest = reader.get_raw(kHostDigestBytes);
  const std::string_view rest = reader.get_raw(reader.remaining());
  if (rest.find_first_not_of('\0') != std::string_view::npos)
    fail(ErrorCode::protocol, "unique id: unexpected bytes at the end");
  return address;
}

Address new_address() {
  static std::mutex mutex;
  static Server& own = *new Server;
  const std::lock_guard lock(mutex);
  if (own.process != ::getpid()) {
    (void)own.server.release();  // NOLINT(bugprone-unused-return-value): the parent's, if this is a child
    own.secret = os::to_hex(os::random_id());
    own.server = TcpStoreServer::start({.secret = own.secret});
    own.process = ::getpid();
  }
  return {own.server->port(), own.secret, os::to_hex(os::random_id()), digest_of_host()};
}

std::shared_ptr<Store> open_store(const Address& address, Duration timeout) {
  if (address.host_digest != digest_of_host())
    fail(ErrorCode::unsupported,
         "the unique id was made on another machine: communicators of several need NCCL");
  return prefix_store(tcp_store({.port = address.port, .secret = address.secret, .timeout = timeout}),
                      address.name);
}

}  // namespace onehop::nccl
