// SPDX-License-Identifier: Apache-2.0
// The Python module of the adapter. onehop/torch/_backend.py is its only user.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router.h"

namespace py = pybind11;

namespace onehop_torch {
namespace {

c10::intrusive_ptr<Router> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                  std::chrono::milliseconds timeout, std::string group,
                                  std::vector<int64_t> global_ranks, int64_t scratch_bytes,
                                  bool allow_overlapping_devices, std::string tuning, std::string fallback,
                                  int64_t failure_grace_ms) {
  return Router::create(store, rank, size, timeout, {std::move(group), std::move(global_ranks)},
                        {scratch_bytes, allow_overlapping_devices, std::move(tuning), failure_grace_ms},
                        std::move(fallback));
}

/// A Python function as an allocator. It is called, copied and destroyed with the GIL.
void set_allocator(Router& router, py::function function) {
  const auto locked =
      std::shared_ptr<py::function>(new py::function(std::move(function)), [](py::function* f) {
        const py::gil_scoped_acquire gil;
        delete f;
      });
  router.set_allocator([locked](int64_t size, const at::TensorOptions& options) {
    const py::gil_scoped_acquire gil;
    const py::object dtype = py::cast(c10::typeMetaToScalarType(options.dtype()));
    return (*locked)(size, dtype, py::cast(options.device())).cast<at::Tensor>();
  });
}

}  // namespace

Router::BackendPtr make_engine(const EngineRequest& request) {
  const py::gil_scoped_acquire gil;
  try {
    return py::module_::import("onehop.torch._fallback")
        .attr("make")(request.engine, request.device.str(), request.reason, request.store, request.rank,
                      request.size, request.timeout, request.members.group, request.members.global_ranks)
        .cast<Router::BackendPtr>();
  } catch (const py::error_already_set& error) {
    C10_THROW_ERROR(DistBackendError,
                    c10::str("onehop: process group '", request.members.group, "' needs ", request.engine,
                             ", because ", request.reason, ": ", std::string(py::str(error.value()))));
  }
}

}  // namespace onehop_torch

PYBIND11_MODULE(ONEHOP_MODULE_NAME, m) {
  using onehop_torch::Router;
  using Released = py::call_guard<py::gil_scoped_release>;
  py::module_::import("torch.distributed");  // registers the base class

  using onehop_torch::GroupOptions;
  py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(m, "GroupOptions")
      .def("__deepcopy__", [](const GroupOptions& options, const py::object& /*memo*/) {
        return c10::make_intrusive<GroupOptions>(options);
      });

  py::class_<Router, c10d::Backend, c10::intrusive_ptr<Router>>(m, "OnehopBackend")
      // ProcessGroupNCCL's: new_group calls it on the ranks that are not in the group. Nothing to do here.
      .def("perform_nocolor_split", [](Router&, const at::Device&) {})
      .def(
          "group_handle",
          [](Router& router, const at::Device& device) {
            return reinterpret_cast<std::uintptr_t>(router.group(device));
          },
          Released())
      // Torch's own would describe other options as a mismatch of C++ types.
      .def_property_readonly("supports_shrinking", &Router::supportsShrinking)
      .def(
          "shrink",
          [](Router& router, const std::vector<int64_t>& excluded, int flags, const py::object& options) {
            TORCH_CHECK_VALUE(
                options.is_none(),
                "onehop: shrink_group takes no pg_options: the new group has those of the old one");
            const py::gil_scoped_release released;
            return router.shrink(excluded, flags, nullptr);
          },
          py::arg("ranks_to_exclude"), py::arg("shrink_flags") = 0, py::arg("opts_override") = py::none())
      .def("engine", &Router::engine, Released())
      .def("check", &Router::check, Released())
      // torch 2.11 has these for its own backends only.
      .def_property_readonly("options", &Router::getBackendOptions)
      .def("_set_default_timeout", &Router::setTimeout, Released())
      .def("set_allocator", &onehop_torch::set_allocator);

  m.def("create", &onehop_torch::create, py::arg("store"), py::arg("rank"), py::arg("size"),
        py::arg("timeout"), py::arg("group"), py::arg("global_ranks"), py::arg("scratch_bytes"),
        py::arg("allow_overlapping_devices"), py::arg("tuning"), py::arg("fallback"),
        py::arg("failure_grace_ms"), Released());
  m.def("check_all", &Router::check_all, Released());
  m.def("shutdown_at_exit", &Router::shutdown_all_at_exit, Released());
}
