// SPDX-License-Identifier: Apache-2.0
// Joining, watching and leaving groups.
#include "group.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "errors.h"
#include "given.h"
#include "store.h"
#include "text.h"

namespace onehop_python {
namespace {

/// What join and from_env share.
struct JoinSettings {
  std::string name;
  std::string tuning;
  onehop_join_options_t options{};

  JoinSettings(int device, const Text& given_name, nb::handle timeout, std::size_t scratch_bytes,
               bool allow_overlapping_devices, nb::handle table, bool require_verified_peers,
               const Text& given_share_by)
      : name(given_name.read("name")), tuning(table.is_none() ? "" : read_path(table, "tuning")) {
    const std::string share_by = given_share_by.read("share_by");
    onehop_join_options_init(&options, sizeof options);
    options.name = name.c_str();
    options.timeout_ms = read_timeout(timeout);
    options.scratch_bytes = scratch_bytes;
    options.device = device;
    options.allow_overlapping_devices = allow_overlapping_devices ? 1 : 0;
    options.tuning = table.is_none() ? nullptr : tuning.c_str();
    options.require_verified_peers = require_verified_peers ? 1 : 0;
    check(onehop_share_by_parse(share_by.c_str(), &options.share_by));
  }
};

template <class Join>
void construct(Group* self, Join&& join) {
  onehop_group_t* group = nullptr;
  run([&] { return join(&group); });
  new (self) Group(Handle<onehop_group_t>(group));
}

/// A capsule that a Python class derived from Group takes over.
nb::capsule in_capsule(Handle<onehop_group_t> handle) {
  nb::capsule capsule(handle.get(), "onehop_group",
                      [](void* group) noexcept { Destroyer{}(static_cast<onehop_group_t*>(group)); });
  (void)handle.release();
  return capsule;
}

nb::object split(Group& self, const Given<int>& color, const Given<int>& key) {
  int own_color = 0;
  int own_key = 0;
  read_or_refuse(
      [&] {
        own_color = color.read("color", "an integer of 32 bits");
        own_key = key.read("key", "an integer of 32 bits");
      },
      [&](onehop_status_t status, const char* reason) {
        return onehop_refuse_split(self.handle(), status, reason);
      });
  onehop_group_t* part = nullptr;
  run([&] { return onehop_group_split(self.handle(), own_color, own_key, &part); });
  if (part == nullptr) return nb::none();
  return in_capsule(Handle<onehop_group_t>(part));
}

nb::object shrink(Group& self, nb::handle timeout) {
  onehop_group_t* survivors = nullptr;
  const std::int64_t limit = read_timeout(timeout);
  run([&] { return onehop_group_shrink(self.handle(), limit, &survivors); });
  return in_capsule(Handle<onehop_group_t>(survivors));
}

nb::tuple parent_ranks(const Group& self) {
  nb::list ranks;
  for (int r = 0; onehop_group_parent_rank(self.handle(), r) >= 0; ++r)
    ranks.append(onehop_group_parent_rank(self.handle(), r));
  return nb::tuple(ranks);
}

/// All ranks' groups, in capsules.
nb::list join_local(const std::vector<int>& devices, const Text& name, nb::handle timeout,
                    std::size_t scratch_bytes, bool allow_overlapping_devices, nb::handle tuning,
                    bool require_verified_peers, const Text& share_by) {
  const JoinSettings settings(ONEHOP_DEVICE_HOST, name, timeout, scratch_bytes, allow_overlapping_devices,
                              tuning, require_verified_peers, share_by);
  std::vector<onehop_group_t*> joined(devices.size());
  run([&] {
    return onehop_group_join_local(devices.data(), devices.size(), &settings.options, joined.data());
  });
  std::vector<Handle<onehop_group_t>> handles(joined.begin(), joined.end());
  nb::list groups;
  for (Handle<onehop_group_t>& each : handles) groups.append(in_capsule(std::move(each)));
  return groups;
}

nb::list all_gather_bytes(Group& self, const nb::bytes& payload) {
  onehop_payloads_t* raw = nullptr;
  run([&] { return onehop_group_all_gather_bytes(self.handle(), payload.data(), payload.size(), &raw); });
  const Handle<onehop_payloads_t> payloads(raw);
  nb::list all;
  for (std::size_t i = 0; i < onehop_payloads_count(raw); ++i)
    all.append(nb::bytes(onehop_payloads_data(raw, i), onehop_payloads_bytes(raw, i)));
  return all;
}

nb::dict usage(const Group& self) {
  constexpr onehop_algorithm_t kAlgorithms[] = {ONEHOP_ALGORITHM_ONE_SHOT, ONEHOP_ALGORITHM_TWO_SHOT};
  uint64_t counts[ONEHOP_ALGORITHM_TWO_SHOT + 1] = {};
  check(onehop_group_usage(self.handle(), counts, std::size(counts)));
  nb::dict named;
  for (const onehop_algorithm_t each : kAlgorithms) named[onehop_algorithm_name(each)] = counts[each];
  return named;
}

}  // namespace

void add_group(nb::module_& module) {
  nb::class_<Group> group(module, "Group", nb::is_weak_referenceable(), nb::dynamic_attr());
  group.def(
      "__init__",
      [](Group* self, nb::object store, int rank, int size, int device, const Text& name, nb::object timeout,
         std::size_t scratch_bytes, bool allow_overlapping_devices, nb::object tuning,
         bool require_verified_peers, const Text& share_by) {
        JoinSettings settings(device, name, timeout, scratch_bytes, allow_overlapping_devices, tuning,
                              require_verified_peers, share_by);
        if (store.is_none()) {
          construct(self,
                    [&](onehop_group_t** made) { return onehop_group_from_env(&settings.options, made); });
          return;
        }
        settings.options.rank = rank;
        settings.options.world_size = size;
        onehop_store_t* const handle = store_handle(store);
        construct(self,
                  [&](onehop_group_t** made) { return onehop_group_join(handle, &settings.options, made); });
      },
      nb::arg("store").none(), nb::arg("rank"), nb::arg("size"), nb::arg("device"), nb::arg("name"),
      nb::arg("timeout").none(), nb::arg("scratch_bytes"), nb::arg("allow_overlapping_devices"),
      nb::arg("tuning").none(), nb::arg("require_verified_peers"), nb::arg("share_by"));
  group.def("__init__", [](Group* self, nb::capsule part) {
    if (std::string_view(part.name() != nullptr ? part.name() : "") != "onehop_group")
      raise_invalid("Group takes a capsule that split, shrink or join_local returned");
    // The capsule keeps its address, and must not destroy the group again.
    auto* const handle = static_cast<onehop_group_t*>(part.data());
    if (PyCapsule_SetName(part.ptr(), "taken") != 0 || PyCapsule_SetDestructor(part.ptr(), nullptr) != 0)
      throw nb::python_error();
    new (self) Group(Handle<onehop_group_t>(handle));
  });
  group
      .def_prop_ro(
          "rank", [](const Group& self) { return onehop_group_rank(self.handle()); },
          "This process's rank, from 0 to size - 1.")
      .def_prop_ro("size", &Group::size, "Number of ranks.")
      .def_prop_ro(
          "parent_ranks", parent_ranks,
          "By rank: its number in the group that this one was made from by `split` or `shrink`. Empty after "
          "joining.")
      .def_prop_ro("device", &Group::device, "CUDA device ordinal; -1 in a group of host ranks.")
      .def_prop_ro(
          "id", [](const Group& self) { return std::string(onehop_group_id(self.handle())); },
          "32 hex digits that identify this group, the same on all ranks.")
      .def_prop_ro(
          "name", [](const Group& self) { return to_str(onehop_group_name(self.handle())); },
          nb::sig("def name(self, /) -> str"), "The name under which the ranks joined.")
      .def_prop_ro(
          "timeout", [](const Group& self) { return double(onehop_group_timeout(self.handle())) / 1000; },
          "The default timeout of this group's calls, in seconds.")
      .def_prop_ro(
          "share_by",
          [](const Group& self) {
            return std::string(onehop_share_by_name(onehop_group_share_by(self.handle())));
          },
          nb::sig("def share_by(self, /) -> ShareBy"),
          "How the ranks share memory: \"fd\", \"fabric\" or \"ipc\".")
      .def_prop_ro(
          "tuning_file",
          [](const Group& self) {
            return nb::steal(PyUnicode_DecodeFSDefault(onehop_group_tuning_file(self.handle())));
          },
          nb::sig("def tuning_file(self, /) -> str"),
          "The tuning table that the group follows, as named on rank 0; \"\" if none was named.")
      .def("usage", usage, nb::sig("def usage(self) -> dict[str, int]"),
           "Number of collectives of this rank by algorithm: {\"one-shot\": 3, \"two-shot\": 0}.\n\n"
           "Counts completed calls on the host and enqueued calls on GPUs; replays of CUDA graphs do not "
           "count.")
      .def(
          "check", [](const Group& self) { check(onehop_group_check(self.handle())); },
          "Raises the error that any call would raise now; returns if the group is usable.")
      .def(
          "watch",
          [](Group& self, nb::handle grace) {
            check(onehop_group_watch(self.handle(), read_timeout(grace)));
          },
          nb::arg("grace").none() = nb::none(),
          nb::sig("def watch(self, grace: float | timedelta | None = None) -> None"),
          "Has a thread watch the group, for programs that replay CUDA graphs and so make no calls that "
          "could "
          "raise.\n\n"
          "When the group has failed, the thread logs the error at once. If `grace` seconds later no call "
          "has "
          "raised it,\n"
          "and this rank has not left, the process ends with exit code 1. None: it only logs.")
      .def(
          "barrier",
          [](Group& self, nb::handle timeout) {
            int64_t limit = 0;
            read_or_refuse([&] { limit = read_timeout(timeout); },
                           [&](onehop_status_t status, const char* reason) {
                             return onehop_refuse_call(self.handle(), ONEHOP_COLLECTIVE_BARRIER, status,
                                                       reason);
                           });
            run([&] { return onehop_group_barrier(self.handle(), limit); });
          },
          nb::arg("timeout").none() = nb::none(),
          nb::sig("def barrier(self, timeout: float | timedelta | None = None) -> None"),
          "Waits on the host until all ranks have called it. Collective. Does not wait for GPU work.")
      .def(
          "synchronize",
          [](Group& self, nb::handle stream, nb::handle timeout) {
            const int64_t limit = read_timeout(timeout);
            void* const queue = self.stream(stream);
            run([&] { return onehop_group_synchronize(self.handle(), queue, limit); });
          },
          nb::arg("stream").none() = nb::none(), nb::arg("timeout").none() = nb::none(),
          nb::sig("def synchronize(self, stream: Stream = None, timeout: float | timedelta | None = None) -> "
                  "None"),
          "Waits until all work enqueued on `stream` has completed, and raises if a collective failed "
          "there.\n\n"
          "If it does not complete in time, the group fails on all ranks with `Timeout`, whose `rank` delays "
          "it.\n"
          "On the host, equivalent to `check`.")
      .def(
          "abort",
          [](Group& self, const Text& given) {
            const std::string reason = given.read("reason");
            without_gil([&] { onehop_group_abort(self.handle(), reason.c_str()); });
          },
          nb::arg("reason") = "aborted by the application",
          nb::sig("def abort(self, reason: str = \"aborted by the application\") -> None"),
          "Makes the current and later calls of every rank raise `Aborted`. Not collective.\n\n"
          "May be called from any thread, even while another thread of this rank waits in a call.")
      .def(
          "leave", [](Group& self) { without_gil([&] { onehop_group_leave(self.handle()); }); },
          "Leaves the group: later calls raise `InvalidArgument`. Never raises; may be repeated.\n\n"
          "On a GPU it first waits for the device, at most for the group's timeout. Buffers stay readable.")
      .def("_split", split, nb::arg("color").none(), nb::arg("key").none())
      .def("_shrink", shrink, nb::arg("timeout").none())
      .def("_all_gather_bytes", all_gather_bytes, nb::arg("payload"));
  module.attr("_MAX_HOST_RANKS") = int(ONEHOP_MAX_HOST_RANKS);
  module.def("_join_local", join_local, nb::arg("devices"), nb::arg("name"), nb::arg("timeout").none(),
             nb::arg("scratch_bytes"), nb::arg("allow_overlapping_devices"), nb::arg("tuning").none(),
             nb::arg("require_verified_peers"), nb::arg("share_by"));
  add_collectives(group, module);
}

}  // namespace onehop_python
