// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "errors.h"
#include "group.h"
#include "text.h"

namespace onehop_python {
namespace {

struct Topology {
  Handle<onehop_topology_t> handle;
};

template <class Make>
Topology make_topology(Make&& make) {
  onehop_topology_t* topology = nullptr;
  run([&] { return make(&topology); });
  return {Handle<onehop_topology_t>(topology)};
}

template <class Write>
std::string text_of(Write&& write) {
  char* text = nullptr;
  run([&] { return write(&text); });
  const Handle<char> held(text);
  return text;
}

/// A method: what `write` of the C API writes.
template <auto write>
std::string text(const Topology& self) {
  return text_of([&](char** made) { return write(self.handle.get(), made); });
}

std::string connectivity(const Topology& self, const std::optional<std::vector<int>>& devices) {
  const int* const ids = devices ? devices->data() : nullptr;
  const std::size_t count = devices ? devices->size() : 0;
  return text_of(
      [&](char** text) { return onehop_topology_explain_connectivity(self.handle.get(), ids, count, text); });
}

/// Tuples (from, to, ok, failure, store, load, copy, latency, tests), which onehop._machine names.
nb::list check_peers(const std::optional<std::vector<int>>& devices, std::optional<std::size_t> nbytes,
                     bool measure_bandwidth, nb::handle timeout, bool remember) {
  onehop_peer_check_options_t options;
  onehop_peer_check_options_init(&options, sizeof options);
  if (devices) {
    options.devices = devices->data();
    options.device_count = devices->size();
  }
  if (nbytes) options.bytes = *nbytes;
  options.measure_bandwidth = measure_bandwidth ? 1 : 0;
  if (!timeout.is_none()) options.timeout_ms = read_timeout(timeout);
  options.remember = remember ? 1 : 0;
  onehop_peer_report_t* raw = nullptr;
  run([&] { return onehop_peers_check(&options, &raw); });
  const Handle<onehop_peer_report_t> report(raw);
  nb::list pairs;
  for (std::size_t i = 0; i < onehop_peer_report_count(raw); ++i) {
    onehop_peer_pair_t pair;
    onehop_peer_pair_init(&pair, sizeof pair);
    check(onehop_peer_report_pair(raw, i, &pair));
    nb::dict tests;
    for (std::size_t t = 0; t < pair.test_count; ++t) {
      onehop_peer_test_result_t test;
      onehop_peer_test_result_init(&test, sizeof test);
      check(onehop_peer_report_test(raw, i, t, &test));
      tests[onehop_peer_test_name(test.test)] = onehop_peer_outcome_name(test.outcome);
    }
    const auto measured = [](double value) { return value < 0 ? nb::none() : nb::object(nb::float_(value)); };
    pairs.append(nb::make_tuple(pair.from, pair.to, pair.ok != 0, pair.failure, measured(pair.store_gbps),
                                measured(pair.load_gbps), measured(pair.copy_gbps), measured(pair.latency_ns),
                                tests));
  }
  return pairs;
}

bool peers_verified(const std::vector<int>& devices) {
  int verified = 0;
  run([&] { return onehop_peers_verified(devices.data(), devices.size(), &verified); });
  return verified != 0;
}

nb::tuple job_from_env() {
  onehop_job_info_t job;
  onehop_job_info_init(&job, sizeof job);
  check(onehop_job_from_env(&job));
  return nb::make_tuple(job.rank, job.world_size, job.local_rank, job.launcher);
}

}  // namespace

void add_machine(nb::module_& module) {
  nb::class_<Topology>(module, "Topology",
                       "Devices, links and distances of a machine. `topology` makes one. Immutable.")
      .def("to_json", text<onehop_topology_to_json>, "As JSON, which `topology(json=...)` reads.")
      .def("to_text", text<onehop_topology_to_text>, "As a readable matrix.")
      .def("to_svg", text<onehop_topology_to_svg>, "As a drawing, which notebooks show.")
      .def("_repr_svg_", [](nb::handle self) { return self.attr("to_svg")(); })
      .def("__repr__",
           [](const Topology& self) {
             return "<onehop.Topology of " + std::to_string(onehop_topology_device_count(self.handle.get())) +
                    " GPUs>";
           })
      .def(
          "as_dict",
          [](nb::handle self) { return nb::module_::import_("json").attr("loads")(self.attr("to_json")()); },
          nb::sig("def as_dict(self) -> dict[str, Any]"), "The JSON, parsed.")
      .def("connectivity", connectivity, nb::arg("devices").none() = nb::none(),
           nb::sig("def connectivity(self, devices: Sequence[int] | None = None) -> str"),
           "Whether these devices (all, if None) are fully connected, and why, in one line.")
      .def_prop_ro(
          "device_count",
          [](const Topology& self) { return onehop_topology_device_count(self.handle.get()); },
          "Number of GPUs.")
      .def_prop_ro(
          "notes",
          [](const Topology& self) {
            std::vector<std::string> notes;
            for (std::size_t i = 0; i < onehop_topology_note_count(self.handle.get()); ++i)
              notes.emplace_back(onehop_topology_note(self.handle.get(), i));
            return notes;
          },
          "What could not be determined and why, one line each.");
  module.def("_topology_probe", [] { return make_topology(onehop_topology_probe); });
  module.def("_topology_from_json", [](const Text& given) {
    const std::string json = given.read("json");
    return make_topology(
        [&](onehop_topology_t** made) { return onehop_topology_from_json(json.c_str(), made); });
  });
  module.def("_check_peers", check_peers, nb::arg("devices").none(), nb::arg("nbytes").none(),
             nb::arg("measure_bandwidth"), nb::arg("timeout").none(), nb::arg("remember"));
  module.def("_peers_verified", peers_verified);
  module.def("_job_from_env", job_from_env);
}

}  // namespace onehop_python
