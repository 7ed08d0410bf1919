// SPDX-License-Identifier: Apache-2.0
// The Python module of the adapter. onehop/torch/_backend.py is its only user.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend.h"

namespace py = pybind11;

namespace onehop_torch {
namespace {

using BackendPtr = c10::intrusive_ptr<Backend>;

/// Backends that exist, for the end of the process. Holds no references.
class Registry {
 public:
  void add(const BackendPtr& backend) {
    const std::lock_guard lock(mutex_);
    std::erase_if(backends_, [](const auto& weak) { return weak.expired(); });
    backends_.emplace_back(backend);
  }
  std::vector<BackendPtr> take() {
    const std::lock_guard lock(mutex_);
    std::vector<BackendPtr> result;
    for (const auto& weak : backends_) {
      if (auto backend = weak.lock()) result.push_back(std::move(backend));
    }
    backends_.clear();
    return result;
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Backend>> backends_;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

BackendPtr create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  std::chrono::milliseconds timeout, std::string group, std::vector<int64_t> global_ranks,
                  int64_t scratch_bytes, bool allow_overlapping_devices, std::string tuning) {
  auto backend =
      c10::make_intrusive<Backend>(store, rank, size, timeout, std::move(group), std::move(global_ranks),
                                   JoinSettings{scratch_bytes, allow_overlapping_devices, std::move(tuning)});
  registry().add(backend);
  return backend;
}

/// A Python function as an allocator. It is called, copied and destroyed with the GIL.
void set_allocator(Backend& backend, py::function function) {
  const auto locked =
      std::shared_ptr<py::function>(new py::function(std::move(function)), [](py::function* f) {
        const py::gil_scoped_acquire gil;
        delete f;
      });
  backend.set_allocator([locked](int64_t size, const at::TensorOptions& options) {
    const py::gil_scoped_acquire gil;
    const py::object dtype = py::cast(c10::typeMetaToScalarType(options.dtype()));
    return (*locked)(size, dtype, py::cast(options.device())).cast<at::Tensor>();
  });
}

}  // namespace
}  // namespace onehop_torch

PYBIND11_MODULE(ONEHOP_MODULE_NAME, m) {
  using onehop_torch::Backend;
  using Released = py::call_guard<py::gil_scoped_release>;
  py::module_::import("torch.distributed");  // registers the base class

  using onehop_torch::GroupOptions;
  py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(m, "GroupOptions")
      .def("__deepcopy__", [](const GroupOptions& options, const py::object& /*memo*/) {
        return c10::make_intrusive<GroupOptions>(options);
      });

  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(m, "OnehopBackend")
      // ProcessGroupNCCL's: new_group calls it on the ranks that are not in the group. Nothing to do here.
      .def("perform_nocolor_split", [](Backend&, const at::Device&) {})
      .def(
          "group_handle",
          [](Backend& backend, const at::Device& device) {
            return reinterpret_cast<std::uintptr_t>(backend.group(device));
          },
          Released())
      // torch 2.11 has these for its own backends only.
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def("_set_default_timeout", &Backend::setTimeout, Released())
      .def("set_allocator", &onehop_torch::set_allocator);

  m.def("create", &onehop_torch::create, py::arg("store"), py::arg("rank"), py::arg("size"),
        py::arg("timeout"), py::arg("group"), py::arg("global_ranks"), py::arg("scratch_bytes"),
        py::arg("allow_overlapping_devices"), py::arg("tuning"), Released());
  m.def(
      "shutdown_at_exit",
      [] {
        for (const auto& backend : onehop_torch::registry().take()) backend->shutdown_at_exit();
      },
      Released());
}
