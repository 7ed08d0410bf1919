// SPDX-License-Identifier: Apache-2.0
#include "group/exchange_blocks.h"

#include <algorithm>

#include "base/check.h"
#include "base/wire.h"
#include "group/process.h"
#include "group/state.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

// Largest serialized handle that we accept: a fabric handle has 64 bytes, an IPC handle 144.
constexpr std::size_t kMaxHandleBytes = 1024;
// Far larger than any machine's memory, and far from overflow.
constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 47;

/// Message in which a rank describes memory that it has allocated for the others.
struct BlockNotice {
  Status status;
  os::Id process{};  ///< ranks of one process share one mapping
  std::uint64_t bytes = 0;
  std::uint64_t offer = 0;  ///< number of the LocalOffer, for ranks in the same process
  bool has_descriptor = false;
  std::string handle{};       ///< the bytes of the MemoryHandle, if it is serialized
  std::int32_t channels = 0;  ///< number of signal channels; 0: the memory is no buffer
};

std::string encode(const BlockNotice& notice) {
  wire::Writer out;
  out.put_bytes(onehop::encode(notice.status));
  out.put_raw({reinterpret_cast<const char*>(notice.process.data()), notice.process.size()});
  out.put(notice.bytes).put(notice.offer);
  out.put(std::uint8_t{notice.has_descriptor}).put_bytes(notice.handle).put(notice.channels);
  return std::move(out).str();
}

BlockNotice parse_block_notice(std::string_view bytes) {
  wire::Reader in(bytes, "allocation notice");
  BlockNotice notice;
  notice.status = parse_status(in.get_bytes(kMaxPayload));
  const std::string_view id = in.get_raw(notice.process.size());
  std::copy(id.begin(), id.end(), notice.process.begin());
  notice.bytes = in.get<std::uint64_t>();
  notice.offer = in.get<std::uint64_t>();
  notice.has_descriptor = in.get<std::uint8_t>() != 0;
  notice.handle = in.get_bytes(kMaxHandleBytes);
  notice.channels = in.get<std::int32_t>();
  in.finish();
  return notice;
}

}  // namespace

void agree(IpcChannel::Mesh& mesh, const Status& own, const Deadline& deadline, const char* phase) {
  for (const std::string& raw : mesh.all_gather(encode(own), deadline, phase))
    parse_status(raw).throw_if_failed();
}

SharedBlocks exchange_blocks(IpcChannel::Mesh& mesh, const MemoryBackend& backend, std::size_t bytes,
                             std::size_t extra, const Deadline& deadline, const char* phase,
                             const BufferOptions* options,
                             const std::function<void(std::byte*)>& initialize) {
  Allocation own;
  LocalOffer offer;  // valid until all ranks have agreed below
  BlockNotice notice;
  notice.process = process_id();
  notice.bytes = bytes;
  if (options != nullptr) notice.channels = options->channels;
  notice.status = attempt(mesh, phase, [&] {
    os::fault_point("allocate", mesh.rank().value);
    if (options != nullptr) SymmetricBuffer::State::require_usable(*options);
    require(bytes > 0 && bytes <= kMaxBlockBytes, "cannot allocate {} bytes of symmetric memory", bytes);
    own = backend.create(bytes + extra);
    if (initialize) initialize(own.block->data());
    offer = LocalOffer(own.block);
    notice.offer = offer.number();
    notice.has_descriptor = static_cast<bool>(own.handle.descriptor);
    notice.handle = own.handle.bytes;
  });

  std::vector<BlockNotice> notices;
  for (const std::string& raw : mesh.all_gather(encode(notice), deadline, phase)) {
    notices.push_back(parse_block_notice(raw));
  }
  for (const BlockNotice& each : notices) each.status.throw_if_failed();
  for (std::size_t r = 1; r < notices.size(); ++r) {
    const Rank first = mesh.named(Rank{0});
    const Rank odd = mesh.named(Rank{static_cast<int>(r)});
    if (notices[r].bytes != notices[0].bytes) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank {} asks for {} bytes, rank {} for {}", phase, first.value,
                notices[0].bytes, odd.value, notices[r].bytes);
    }
    if (notices[r].channels != notices[0].channels) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank {} asks for {} channels, rank {} for {}", phase,
                first.value, notices[0].channels, odd.value, notices[r].channels);
    }
  }

  const bool one_process = std::all_of(notices.begin(), notices.end(), [&](const BlockNotice& each) {
    return each.process == notices[0].process;
  });
  std::vector<os::UniqueFd> descriptors(notices.size());
  if (!one_process && std::any_of(notices.begin(), notices.end(),
                                  [](const BlockNotice& each) { return each.has_descriptor; }))
    descriptors = mesh.all_gather_fds(own.handle.descriptor.get(), deadline);

  MappedBlocks blocks(notices.size());
  const Status mapped = attempt(mesh, phase, [&] {
    os::fault_point("map", mesh.rank().value);
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      if (static_cast<int>(r) == mesh.rank().value) {
        blocks[r] = own.block;
      } else if (notices[r].process != notice.process) {
        blocks[r] = backend.import(
            {.descriptor = std::move(descriptors[r]), .bytes = std::move(notices[r].handle)}, bytes + extra);
      } else if (blocks[r] = LocalOffer::take(notices[r].offer);
                 blocks[r] == nullptr || blocks[r]->bytes() != own.block->bytes()) {
        const Rank lost = mesh.named(Rank{static_cast<int>(r)});
        fail_from(lost, ErrorCode::peer_lost, "rank {} gave up before its memory was mapped", lost.value);
      } else {
        backend.adopt(*blocks[r]);
      }
    }
  });
  agree(mesh, mapped, deadline, phase);
  return {.blocks = std::move(blocks), .one_process = one_process};
}

}  // namespace onehop
