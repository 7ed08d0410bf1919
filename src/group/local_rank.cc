// SPDX-License-Identifier: Apache-2.0
#include "group/local_rank.h"

#include <utility>

#include "base/check.h"
#include "group/exchange_blocks.h"
#include "os/processors.h"

namespace onehop {

void LocalRank::make_segments(
    std::size_t between, std::size_t staging_bytes, const Deadline& deadline,
    const std::function<void(host::SegmentHeader& own, std::span<std::byte> staging)>& initialize) {
  const std::size_t before = sizeof(host::SegmentHeader) + between;
  SharedBlocks shared = exchange_blocks(mesh_, *host_memory_, staging_bytes, before, deadline, "joining",
                                        nullptr, [&](std::byte* own) {
                                          auto& header = *reinterpret_cast<host::SegmentHeader*>(own);
                                          header.processors.write(os::usable_processors());
                                          if (initialize) initialize(header, {own + before, staging_bytes});
                                        });
  host_segments_ = std::move(shared.blocks);
  one_process_ = shared.one_process;
  std::vector<host::StepBarrier::Member> members;
  std::vector<os::Processors> processors;
  for (const std::shared_ptr<Block>& segment : host_segments_) {
    members.push_back({.header = &header_of(*segment), .staging = segment->data() + before});
    processors.push_back(header_of(*segment).processors.read());
  }
  step_barrier_ = host::StepBarrier(mesh_.rank().value, std::move(members), staging_bytes,
                                    os::SpinPolicy::for_ranks(os::can_run_at_once(processors)));
}

void LocalRank::throw_given_up(Rank r, const char* phase) {
  mesh_.check(phase);  // it told the others why before it gave up
  const Rank named = mesh_.named(r);
  fail_from(named, ErrorCode::peer_lost, "{}: rank {} has given up this call", phase, named.value);
}

}  // namespace onehop
