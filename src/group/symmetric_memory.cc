// SPDX-License-Identifier: Apache-2.0
// How a group allocates symmetric memory, or registers memory that its user already has; and how it finds
// that memory again by address.
#include <algorithm>

#include "base/wire.h"
#include "group/device_rank.h"
#include "group/exchange_blocks.h"
#include "group/host_rank.h"
#include "group/state.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

constexpr const char* kAllocate = "allocate";
constexpr const char* kRegister = "register_buffer";

/// The addresses after a pad at the start of each block.
std::vector<std::byte*> data_of(const MappedBlocks& blocks, std::size_t pad) {
  std::vector<std::byte*> data;
  for (const std::shared_ptr<Block>& block : blocks) data.push_back(block->data() + pad);
  return data;
}

/// The words at the start of each block, which `owners` keeps mapped.
std::vector<std::uint32_t*> words_of(const MappedBlocks& blocks, MappedBlocks& owners) {
  std::vector<std::uint32_t*> words;
  for (const std::shared_ptr<Block>& block : blocks) {
    words.push_back(reinterpret_cast<std::uint32_t*>(block->data()));
    owners.push_back(block);
  }
  return words;
}

/// The message by which a rank describes memory that it registers.
struct RegistrationNotice {
  Status status;
  std::uint64_t bytes = 0;
  std::int32_t channels = 0;
  UserMemory memory;  ///< unless the status is an error
};

std::string encode(const RegistrationNotice& notice) {
  wire::Writer out;
  out.put_bytes(onehop::encode(notice.status));
  out.put(notice.bytes).put(notice.channels);
  if (!notice.status.ok()) return std::move(out).str();
  out.put(std::uint8_t{notice.memory.has_descriptor}).put_bytes(notice.memory.place.to_bytes());
  return std::move(out).str();
}

RegistrationNotice parse_registration_notice(std::string_view bytes) {
  wire::Reader in(bytes, "registration notice");
  RegistrationNotice notice;
  notice.status = parse_status(in.get_bytes(kMaxPayload));
  notice.bytes = in.get<std::uint64_t>();
  notice.channels = in.get<std::int32_t>();
  if (notice.status.ok()) {
    notice.memory.has_descriptor = in.get<std::uint8_t>() != 0;
    notice.memory.place = IpcHandle::from_bytes(in.get_bytes(kMaxPayload));
  }
  in.finish();
  return notice;
}

}  // namespace

SymmetricBuffer Group::State::allocate(std::size_t bytes, const BufferOptions& options) {
  return call(kAllocate, options_.timeout, [&](os::CallDeadline& started) {
    return add_buffer(bytes, options, local_->allocate(bytes, options, started.arm()));
  });
}

BufferParts HostRank::allocate(std::size_t bytes, const BufferOptions& options, const Deadline& deadline) {
  const std::size_t pad = SymmetricBuffer::State::host_pad_bytes(mesh_.size(), options);
  const MappedBlocks blocks =
      exchange_blocks(mesh_, host_memory(), bytes, pad, deadline, kAllocate, &options).blocks;
  BufferParts parts;
  parts.data = data_of(blocks, pad);
  parts.host_pads = words_of(blocks, parts.owners);
  return parts;
}

BufferParts DeviceRank::allocate(std::size_t bytes, const BufferOptions& options, const Deadline& deadline) {
  const std::size_t pad = SymmetricBuffer::State::device_pad_bytes(options);
  const MappedBlocks blocks =
      exchange_blocks(mesh_, *memory_, bytes, pad, deadline, kAllocate, &options).blocks;
  BufferParts parts;
  parts.data = data_of(blocks, pad);
  parts.device_pads = words_of(blocks, parts.owners);
  add_host_pads(parts, options, deadline, kAllocate);
  return parts;
}

void DeviceRank::add_host_pads(BufferParts& parts, const BufferOptions& options, const Deadline& deadline,
                               const char* phase) {
  const std::size_t bytes = SymmetricBuffer::State::host_pad_bytes(mesh_.size(), options);
  parts.host_pads =
      words_of(exchange_blocks(mesh_, host_memory(), bytes, 0, deadline, phase).blocks, parts.owners);
}

SymmetricBuffer HostRank::register_buffer(void* /*data*/, std::size_t /*bytes*/,
                                          const BufferOptions& /*options*/, const Error* refusal) {
  // Every rank finds the error by itself, and the group stays usable.
  mesh_.check(kRegister);
  if (refusal != nullptr) throw Error(refusal->code(), refusal->message(), mesh_.rank());
  fail(ErrorCode::unsupported,
       "register_buffer: other processes cannot map memory of a host rank that was not made for it; take "
       "symmetric memory from Group::allocate, or leave the memory as it is: collectives take any");
}

SymmetricBuffer DeviceRank::register_buffer(void* data, std::size_t bytes, const BufferOptions& options,
                                            const Error* refusal) {
  if (refusal != nullptr) mesh_.check(kRegister);
  return group_.call(kRegister, group_.options().timeout, [&](os::CallDeadline& started) {
    const Deadline& deadline = started.arm();
    BufferParts parts =
        exchange_user_memory(static_cast<std::byte*>(data), bytes, options, refusal, deadline);
    const std::size_t pad = SymmetricBuffer::State::device_pad_bytes(options);
    parts.device_pads =
        words_of(exchange_blocks(mesh_, *memory_, pad, 0, deadline, kRegister).blocks, parts.owners);
    add_host_pads(parts, options, deadline, kRegister);
    return group_.add_buffer(bytes, options, std::move(parts));
  });
}

BufferParts DeviceRank::exchange_user_memory(std::byte* data, std::size_t bytes, const BufferOptions& options,
                                             const Error* refusal, const Deadline& deadline) {
  const DeviceId device = group_.options().device;
  RegistrationNotice own;
  own.bytes = bytes;
  own.channels = options.channels;
  os::UniqueFd descriptor;
  own.status = attempt(mesh_, kRegister, [&] {
    os::fault_point(kRegister, mesh_.rank().value);
    if (refusal != nullptr) throw Error(*refusal);
    SymmetricBuffer::State::require_usable(options);
    SharedUserMemory shared = share_user_memory(data, bytes, device);
    own.memory = shared.memory;
    descriptor = std::move(shared.descriptor);
  });

  std::vector<RegistrationNotice> notices;
  for (const std::string& raw : mesh_.all_gather(encode(own), deadline, kRegister)) {
    notices.push_back(parse_registration_notice(raw));
  }
  for (const RegistrationNotice& each : notices) each.status.throw_if_failed();
  for (std::size_t r = 1; r < notices.size(); ++r) {
    const Rank odd{static_cast<int>(r)};
    if (notices[r].bytes != notices[0].bytes) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank 0 registers {} bytes, rank {} registers {}", kRegister,
                notices[0].bytes, r, notices[r].bytes);
    }
    if (notices[r].channels != notices[0].channels) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank 0 asks for {} channels, rank {} for {}", kRegister,
                notices[0].channels, r, notices[r].channels);
    }
  }

  std::vector<os::UniqueFd> descriptors(notices.size());
  if (std::any_of(notices.begin(), notices.end(),
                  [](const RegistrationNotice& each) { return each.memory.has_descriptor; })) {
    descriptors = mesh_.all_gather_fds(descriptor.get(), deadline);
  }

  BufferParts parts;
  const Status mapped = attempt(mesh_, kRegister, [&] {
    os::fault_point("map", mesh_.rank().value);
    for (std::size_t r = 0; r < notices.size(); ++r) {
      if (static_cast<int>(r) == mesh_.rank().value) {
        parts.data.push_back(data);
        continue;
      }
      // The handle defines what is mapped; the group uses this many bytes of it.
      require(notices[r].memory.place.bytes == bytes, "rank {} shares {} bytes instead of {}", r,
              notices[r].memory.place.bytes, bytes);
      parts.owners.push_back(map_user_memory(notices[r].memory, std::move(descriptors[r]), device));
      parts.data.push_back(parts.owners.back()->data());
    }
  });
  agree(mesh_, mapped, deadline, kRegister);
  parts.registered = own.memory;
  return parts;
}

SymmetricBuffer Group::State::add_buffer(std::size_t bytes, const BufferOptions& options, BufferParts parts) {
  auto state = std::make_shared<SymmetricBuffer::State>(shared_from_this(), bytes, options, std::move(parts));
  std::erase_if(buffers_, [](const BufferRange& range) { return range.state.expired(); });
  buffers_.push_back({.number = ++buffers_made_,
                      .data = state->data[static_cast<std::size_t>(rank().value)],
                      .bytes = bytes,
                      .state = state});
  return SymmetricBuffer(std::move(state));
}

std::pair<std::shared_ptr<SymmetricBuffer::State>, std::uint64_t> Group::State::find_buffer(
    const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(data);
  for (const BufferRange& range : buffers_) {
    if (first < range.data || first >= range.data + range.bytes) continue;
    if (bytes > static_cast<std::size_t>(range.data + range.bytes - first)) continue;
    // Expired or gone: the memory was freed, and its addresses may belong to something else now.
    std::shared_ptr<SymmetricBuffer::State> state = range.state.lock();
    if (state != nullptr && state->still_there()) return {std::move(state), range.number};
  }
  return {nullptr, 0};
}

}  // namespace onehop
