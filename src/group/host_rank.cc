// SPDX-License-Identifier: Apache-2.0
#include "group/host_rank.h"

#include <cstring>
#include <string_view>

#include "backend/host/step_barrier.h"
#include "group/state.h"
#include "os/process_memory.h"

namespace onehop {
namespace {

host::SegmentHeader& header_of(std::byte* segment) {
  return *reinterpret_cast<host::SegmentHeader*>(segment);
}

}  // namespace

std::byte* HostRank::made_input(std::size_t bytes) {
  if (bytes > made_input_bytes_) {
    made_input_bytes_ = 0;
    made_input_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    made_input_bytes_ = bytes;
  }
  return made_input_.get();
}

void HostRank::announce(std::byte* segment) {
  const host::Wish wish = host::read_wish();
  host::ProcessNotice notice = host::make_notice(process_, wish);
  if (wish != host::Wish::never) {
    os::permit_siblings_to_read();
    trial_.emplace(std::span(segment + sizeof(host::SegmentHeader) + pair_bytes_, staging_bytes_));
    notice.trial = trial_->address();
  }
  header_of(segment).process.write(notice);
}

void HostRank::connect(Group::State& group, const MappedBlocks& segments, const Deadline& deadline) {
  std::vector<host::PointToPoint::Member> members;
  for (const std::shared_ptr<Block>& segment : segments) {
    members.push_back(
        {.bell = &header_of(segment->data()).bell, .area = segment->data() + sizeof(host::SegmentHeader)});
  }
  pairs_ = host::PointToPoint(group.rank().value, members, staging_bytes_);
  single_copy_ = try_single_copy(group, segments, deadline);
  trial_.reset();
}

host::SingleCopy HostRank::try_single_copy(Group::State& group, const MappedBlocks& segments,
                                           const Deadline& deadline) const {
  std::vector<host::ProcessNotice> notices;
  std::vector<host::ReadMarks*> marks;
  for (const std::shared_ptr<Block>& segment : segments) {
    host::SegmentHeader& header = header_of(segment->data());
    notices.push_back(header.process.read());
    marks.push_back(&header.read_marks);
  }
  if (std::string objection = host::find_objection(notices, group.step_barrier().spin().spins());
      !objection.empty())
    return host::SingleCopy(std::move(objection));
  host::SingleCopy works(notices, marks, group.rank().value);
  if (works.one_process()) return works;
  const std::string own = host::find_obstacle(notices, group.rank().value);
  for (const std::string& each : group.mesh().all_gather(own, deadline, "joining")) {
    if (!each.empty()) return host::SingleCopy(each);
  }
  if (always_wanted(notices)) return works;
  if (std::string slowness = find_slowness(group, notices, deadline); !slowness.empty())
    return host::SingleCopy(std::move(slowness));
  return works;
}

std::string HostRank::find_slowness(Group::State& group, std::span<const host::ProcessNotice> notices,
                                    const Deadline& deadline) const {
  using Times = host::CopyTrial::Times;
  // Ranks of the same process as the next one do not measure.
  const auto next = static_cast<std::size_t>((group.rank().value + 1) % group.size());
  const host::ProcessNotice& peer = notices[next];
  std::optional<Times> own;
  if (peer.process != process_) {
    own = host::CopyTrial::measure(peer.pid, peer.trial,
                                   {group.step_barrier().staging(static_cast<int>(next)), staging_bytes_});
  }
  std::vector<Times> measured;
  const std::string_view raw =
      own ? std::string_view(reinterpret_cast<const char*>(&*own), sizeof *own) : std::string_view();
  for (const std::string& each : group.mesh().all_gather(raw, deadline, "joining")) {
    if (each.size() == sizeof(Times)) std::memcpy(&measured.emplace_back(), each.data(), sizeof(Times));
  }
  return host::find_slowness(measured);
}

}  // namespace onehop
