// SPDX-License-Identifier: Apache-2.0
// Sub-groups. A sub-group is made inside a call of its parent. Its errors are that call's errors: they carry
// the parent's rank numbers and reach all ranks of the parent.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "group/exchange_blocks.h"
#include "group/state.h"
#include "os/fault_point.h"
#include "os/random.h"
#include "os/socket.h"

namespace onehop {
namespace {

constexpr const char* kPhase = "split";

struct Choice {
  std::int32_t color;
  std::int32_t key;
  os::Id id;
};

std::vector<Choice> parse_choices(const std::vector<std::string>& all) {
  std::vector<Choice> choices;
  for (const std::string& raw : all) {
    if (raw.size() != sizeof(Choice)) fail(ErrorCode::protocol, "split: a rank sent {} bytes", raw.size());
    std::memcpy(&choices.emplace_back(), raw.data(), sizeof(Choice));
  }
  return choices;
}

/// The parent's ranks of one color, ordered by their new ranks.
std::vector<Rank> members_of(const std::vector<Choice>& choices, int color) {
  std::vector<Rank> members;
  for (std::size_t r = 0; r < choices.size(); ++r) {
    if (color >= 0 && choices[r].color == color) members.emplace_back(static_cast<int>(r));
  }
  const auto key = [&](Rank r) { return choices[static_cast<std::size_t>(r.value)].key; };
  std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) { return key(a) < key(b); });
  return members;
}

/// Connects this rank to the other members over the parent's sockets, so that neither store nor files are
/// needed. The lower rank of each pair creates both ends. Returns the error that occurred on this rank alone.
/// Whatever happens, every member sends and takes one message per other member, so that none is left for a
/// later call.
Status connect_members(IpcChannel::Mesh& mesh, const std::vector<Rank>& members, const Deadline& deadline,
                       std::vector<os::UniqueFd>& sockets) {
  Status status;
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_resources && error.code() != ErrorCode::system) throw;
      if (!status.ok()) return;
      status = Status::of(error, mesh.rank());
      status.message = fmt::format("{}: rank {}: {}", kPhase, mesh.rank().value, error.message());
    }
  };
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].value <= mesh.rank().value) continue;
    std::pair<os::UniqueFd, os::UniqueFd> ends;
    attempt([&] { ends = os::socket_pair(); });
    bool sent = false;
    attempt([&] {
      mesh.send_fd(members[i], ends.second.get(), deadline);
      sent = true;
    });
    if (!sent) mesh.send_fd(members[i], -1, deadline);
    sockets[i] = std::move(ends.first);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].value < mesh.rank().value)
      attempt([&] { sockets[i] = mesh.recv_fd(members[i], deadline); });
  }
  return status;
}

}  // namespace

std::optional<Group> Group::State::split(int color, int key, Status refusal) {
  return call(kPhase, options_.timeout, [&](os::CallDeadline& started) -> std::optional<Group> {
    const Deadline& deadline = started.arm();
    const auto begin = std::chrono::steady_clock::now();
    os::fault_point(kPhase, rank().value);
    const Choice own{.color = color, .key = key, .id = os::random_id()};
    const std::vector<Choice> choices = parse_choices(mesh_->all_gather(
        {reinterpret_cast<const char*>(&own), sizeof own}, deadline, kPhase, std::move(refusal)));
    const std::vector<Rank> members = members_of(choices, color);

    std::vector<os::UniqueFd> sockets(members.size());
    std::optional<Group> part;
    try {
      agree(*mesh_, connect_members(*mesh_, members, deadline, sockets), deadline, kPhase);
      os::fault_point("split.form", rank().value);
      Status formed;
      if (!members.empty()) {
        JoinOptions options = options_;
        options.size = static_cast<int>(members.size());
        options.rank =
            Rank{static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin())};
        options.name += fmt::format(".{}", color);
        const os::Id id = choices[static_cast<std::size_t>(members.front().value)].id;
        formed = form_part(std::move(options), id, std::move(sockets), members, deadline, part);
      }
      agree(*mesh_, formed, deadline, kPhase);
    } catch (const Error& error) {
      // Throw before the sub-group's sockets are closed here: its members would take that for this rank's
      // death.
      if (found_by_all(error.code())) throw;
      try {
        fail_call(error, kPhase);
      } catch (const Error& told) {
        if (part) part->state_->mesh_->fail_with_parent(told);
        throw;
      }
    }
    if (part) {
      part->state_->parent_ranks_ = members;
      part->state_->mesh_->use_own_numbers();
      part->state_->log_beginning("split off", begin);
    }
    return part;
  });
}

Status Group::State::form_part(JoinOptions options, const os::Id& id, std::vector<os::UniqueFd> sockets,
                               const std::vector<Rank>& members, const Deadline& deadline,
                               std::optional<Group>& part) {
  const Rank own = options.rank;
  std::vector<os::ProcessWatch> processes;
  for (const Rank each : members) processes.push_back(mesh_->process_of(each));
  const auto mesh =
      std::make_shared<IpcChannel::Mesh>(own, options.size, std::move(sockets), std::move(processes),
                                         IpcChannel::Mesh::Parent{.mesh = mesh_, .ranks = members});
  // The ranks of other sub-groups wait for this one's members, which know best who is missing.
  const Deadline early = deadline.with_time_to_tell();
  try {
    part = Group(
        std::make_shared<State>(std::move(options), os::to_hex(id), mesh, tuning_, checks_calls_, early));
    return {};
  } catch (const Error& error) {
    // The error that ended the parent's call on another member closed its end of the sub-group, too.
    mesh_->check(kPhase);
    if (!found_by_all(error.code())) fail_call(error, kPhase);
    return Status::of(error, own_name());
  }
}

}  // namespace onehop
