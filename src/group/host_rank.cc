// SPDX-License-Identifier: Apache-2.0
#include "group/host_rank.h"

#include <cstring>
#include <string_view>

#include "backend/host/reduce.h"
#include "backend/host/step_barrier.h"
#include "base/check.h"
#include "os/process_memory.h"

namespace onehop {
HostRank::HostRank(IpcChannel::Mesh& mesh, std::size_t staging_bytes, const Deadline& deadline)
    : LocalRank(mesh, Backend::host) {
  const std::size_t pair_bytes = host::PointToPoint::area_bytes(mesh.size(), staging_bytes);
  make_segments(pair_bytes, staging_bytes, deadline,
                [this](host::SegmentHeader& own, std::span<std::byte> staging) { announce(own, staging); });
  std::vector<host::PointToPoint::Member> members;
  for (const std::shared_ptr<Block>& segment : host_segments()) {
    members.push_back(
        {.bell = &header_of(*segment).bell, .area = segment->data() + sizeof(host::SegmentHeader)});
  }
  pairs_ = host::PointToPoint(mesh.rank().value, members, staging_bytes);
  single_copy_ = try_single_copy(deadline);
  trial_.reset();
}

std::byte* HostRank::made_input(std::size_t bytes) {
  if (bytes > made_input_bytes_) {
    made_input_bytes_ = 0;
    made_input_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    made_input_bytes_ = bytes;
  }
  return made_input_.get();
}

void HostRank::announce(host::SegmentHeader& own, std::span<std::byte> staging) {
  const host::Wish wish = host::read_wish();
  host::ProcessNotice notice = host::make_notice(process_, wish);
  if (wish != host::Wish::never) {
    os::permit_siblings_to_read();
    trial_.emplace(staging);
    notice.trial = trial_->address();
  }
  own.process.write(notice);
}

host::SingleCopy HostRank::try_single_copy(const Deadline& deadline) {
  std::vector<host::ProcessNotice> notices;
  std::vector<host::ReadMarks*> marks;
  for (const std::shared_ptr<Block>& segment : host_segments()) {
    host::SegmentHeader& header = header_of(*segment);
    notices.push_back(header.process.read());
    marks.push_back(&header.read_marks);
  }
  if (std::string objection = host::find_objection(notices, step_barrier().spin().spins());
      !objection.empty())
    return host::SingleCopy(std::move(objection));
  host::SingleCopy works(notices, marks, mesh_.rank().value);
  if (works.one_process()) return works;
  const std::string own = host::find_obstacle(notices, mesh_.rank().value);
  for (const std::string& each : mesh_.all_gather(own, deadline, "joining")) {
    if (!each.empty()) return host::SingleCopy(each);
  }
  if (always_wanted(notices)) return works;
  if (std::string slowness = find_slowness(notices, deadline); !slowness.empty())
    return host::SingleCopy(std::move(slowness));
  return works;
}

std::string HostRank::find_slowness(std::span<const host::ProcessNotice> notices, const Deadline& deadline) {
  using Times = host::CopyTrial::Times;
  // Ranks of the same process as the next one do not measure.
  const auto next = static_cast<std::size_t>((mesh_.rank().value + 1) % mesh_.size());
  const host::ProcessNotice& peer = notices[next];
  std::optional<Times> own;
  if (peer.process != process_) {
    own = host::CopyTrial::measure(
        peer.pid, peer.trial,
        {step_barrier().staging(static_cast<int>(next)), step_barrier().staging_bytes()});
  }
  std::vector<Times> measured;
  const std::string_view raw =
      own ? std::string_view(reinterpret_cast<const char*>(&*own), sizeof *own) : std::string_view();
  for (const std::string& each : mesh_.all_gather(raw, deadline, "joining")) {
    if (each.size() == sizeof(Times)) std::memcpy(&measured.emplace_back(), each.data(), sizeof(Times));
  }
  return host::find_slowness(measured);
}

LocalRank::Description HostRank::describe() const {
  const std::string copies =
      single_copy_.works() ? "once" : fmt::format("twice ({})", single_copy_.obstacle());
  return {.device = fmt::format("host backend ({})", host::isa_name()),
          .sharing = sharing_by("memfd"),
          .calls =
              fmt::format("always, waits {}, large transfers copied {}",
                          step_barrier().spin().spins() ? "spin" : "yield (ranks share processors)", copies)};
}

void HostRank::withdraw() {
  single_copy_.withdraw();
  LocalRank::withdraw();
}

void HostRank::synchronize(Stream /*stream*/, Duration /*timeout*/) {
  mesh_.check("synchronize");
}

Communicator& HostRank::require_communicator(const char* what) const {
  fail(ErrorCode::unsupported, "{} needs a buffer of GPU ranks; this one is in host memory", what);
}

}  // namespace onehop
