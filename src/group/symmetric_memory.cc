// SPDX-License-Identifier: Apache-2.0
// How a group allocates symmetric memory, or registers memory that its user already has; and how it finds
// that memory again by address.
#include <algorithm>

#include "base/wire.h"
#include "group/state.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

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
  constexpr const char* kPhase = "allocate";
  return call(kPhase, options_.timeout, [&](os::CallDeadline& started) {
    const Deadline& deadline = started.arm();
    const bool on_gpus = device_ != nullptr;
    const std::size_t host_pad = SymmetricBuffer::State::host_pad_bytes(size(), options);
    // Each rank's pad lies before its data.
    const std::size_t before = on_gpus ? SymmetricBuffer::State::device_pad_bytes(options) : host_pad;
    const MappedBlocks blocks = exchange_blocks(*mesh_, on_gpus ? device_->memory() : *host_memory_, bytes,
                                                before, deadline, kPhase, &options)
                                    .blocks;
    BufferParts parts;
    for (const std::shared_ptr<Block>& block : blocks) parts.data.push_back(block->data() + before);
    if (on_gpus) {
      parts.device_pads = words_of(blocks, parts.owners);
      parts.host_pads = words_of(exchange_blocks(*mesh_, *host_memory_, host_pad, 0, deadline, kPhase).blocks,
                                 parts.owners);
    } else {
      parts.host_pads = words_of(blocks, parts.owners);
    }
    return add_buffer(bytes, options, std::move(parts));
  });
}

SymmetricBuffer Group::State::register_buffer(void* data, std::size_t bytes, const BufferOptions& options) {
  constexpr const char* kPhase = "register_buffer";
  if (device_ == nullptr) {
    // Every rank finds the error by itself, and the group stays usable.
    mesh_->check(kPhase);
    fail(ErrorCode::unsupported,
         "register_buffer: other processes cannot map memory of a host rank that was not made for it; take "
         "symmetric memory from Group::allocate, or leave the memory as it is: collectives take any");
  }
  return call(kPhase, options_.timeout, [&](os::CallDeadline& started) {
    const Deadline& deadline = started.arm();
    BufferParts parts = exchange_user_memory(static_cast<std::byte*>(data), bytes, options, deadline);
    const std::size_t device_pad = SymmetricBuffer::State::device_pad_bytes(options);
    const std::size_t host_pad = SymmetricBuffer::State::host_pad_bytes(size(), options);
    parts.device_pads = words_of(
        exchange_blocks(*mesh_, device_->memory(), device_pad, 0, deadline, kPhase).blocks, parts.owners);
    parts.host_pads =
        words_of(exchange_blocks(*mesh_, *host_memory_, host_pad, 0, deadline, kPhase).blocks, parts.owners);
    return add_buffer(bytes, options, std::move(parts));
  });
}

void Group::State::refuse_registration(const Error& reason) {
  constexpr const char* kPhase = "register_buffer";
  mesh_->check(kPhase);
  if (device_ == nullptr)
    throw Error(reason.code(), reason.message(), rank());  // the others refuse by themselves
  call(kPhase, options_.timeout, [&](os::CallDeadline& started) {
    (void)exchange_user_memory(nullptr, 0, {}, started.arm(), &reason);
  });
}

BufferParts Group::State::exchange_user_memory(std::byte* data, std::size_t bytes,
                                               const BufferOptions& options, const Deadline& deadline,
                                               const Error* refusal) {
  constexpr const char* kPhase = "register_buffer";
  RegistrationNotice own;
  own.bytes = bytes;
  own.channels = options.channels;
  os::UniqueFd descriptor;
  own.status = attempt(*mesh_, kPhase, [&] {
    os::fault_point(kPhase, rank().value);
    if (refusal != nullptr) throw Error(*refusal);
    SymmetricBuffer::State::require_usable(options);
    SharedUserMemory shared = share_user_memory(data, bytes, options_.device);
    own.memory = shared.memory;
    descriptor = std::move(shared.descriptor);
  });

  std::vector<RegistrationNotice> notices;
  for (const std::string& raw : mesh_->all_gather(encode(own), deadline, kPhase)) {
    notices.push_back(parse_registration_notice(raw));
  }
  for (const RegistrationNotice& each : notices) each.status.throw_if_failed();
  for (std::size_t r = 1; r < notices.size(); ++r) {
    const Rank odd{static_cast<int>(r)};
    if (notices[r].bytes != notices[0].bytes) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank 0 registers {} bytes, rank {} registers {}", kPhase,
                notices[0].bytes, r, notices[r].bytes);
    }
    if (notices[r].channels != notices[0].channels) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank 0 asks for {} channels, rank {} for {}", kPhase,
                notices[0].channels, r, notices[r].channels);
    }
  }

  std::vector<os::UniqueFd> descriptors(notices.size());
  if (std::any_of(notices.begin(), notices.end(),
                  [](const RegistrationNotice& each) { return each.memory.has_descriptor; })) {
    descriptors = mesh_->all_gather_fds(descriptor.get(), deadline);
  }

  BufferParts parts;
  const Status mapped = attempt(*mesh_, kPhase, [&] {
    os::fault_point("map", rank().value);
    for (std::size_t r = 0; r < notices.size(); ++r) {
      if (static_cast<int>(r) == rank().value) {
        parts.data.push_back(data);
        continue;
      }
      // The handle defines what is mapped; the group uses this many bytes of it.
      require(notices[r].memory.place.bytes == bytes, "rank {} shares {} bytes instead of {}", r,
              notices[r].memory.place.bytes, bytes);
      parts.owners.push_back(map_user_memory(notices[r].memory, std::move(descriptors[r]), options_.device));
      parts.data.push_back(parts.owners.back()->data());
    }
  });
  agree(*mesh_, mapped, deadline, kPhase);
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
