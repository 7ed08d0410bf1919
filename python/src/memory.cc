// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <nanobind/stl/string.h>

#include <memory>

#include "dlpack.h"
#include "errors.h"
#include "traverse.h"

namespace onehop_python {
namespace {

/// A DLPack tensor of bytes and what it refers to.
struct ExportedTensor {
  DLManagedTensor managed{};
  std::int64_t shape = 0;
  PyObject* memory = nullptr;
};

void delete_tensor(DLManagedTensor* managed) {
  auto* const exported = static_cast<ExportedTensor*>(managed->manager_ctx);
  // Consumers may call it from any thread.
  with_gil([&] { Py_DECREF(exported->memory); });
  delete exported;
}

void delete_capsule(PyObject* capsule) {
  // A consumer renames the capsule and frees the tensor itself.
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

nb::tuple dlpack_device(const Memory& memory) {
  const bool on_gpu = memory.device() >= 0;
  return nb::make_tuple(on_gpu ? int{kDLCUDA} : int{kDLCPU}, on_gpu ? memory.device() : 0);
}

/// Ignores the arguments: there is no pending work to order, and nothing is ever copied.
nb::object dlpack(nb::handle self, const nb::args& /*args*/, const nb::kwargs& options) {
  if (options.contains("copy") && options["copy"].is(nb::handle(Py_True)))
    throw nb::builtin_exception(nb::exception_type::buffer_error,
                                "symmetric memory is not exported as a copy");
  const auto& memory = object_of<Memory>(self);
  auto exported = std::make_unique<ExportedTensor>();
  exported->shape = static_cast<std::int64_t>(memory.bytes());
  exported->memory = nb::borrow(self).release().ptr();
  const bool on_gpu = memory.device() >= 0;
  exported->managed.dl_tensor = {
      .data = memory.data(),
      .device = {.device_type = on_gpu ? kDLCUDA : kDLCPU, .device_id = on_gpu ? memory.device() : 0},
      .ndim = 1,
      .dtype = {.code = kDLUInt, .bits = 8, .lanes = 1},
      .shape = &exported->shape,
      .strides = nullptr,
      .byte_offset = 0};
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = delete_tensor;
  PyObject* const capsule = PyCapsule_New(&exported->managed, "dltensor", delete_capsule);
  if (capsule == nullptr) throw nb::python_error();
  exported.release();  // NOLINT(bugprone-unused-return-value): the capsule owns it
  return nb::steal(capsule);
}

nb::dict cuda_array_interface(const Memory& memory) {
  if (memory.device() < 0)
    throw nb::attribute_error("host memory has no __cuda_array_interface__; use the buffer protocol");
  nb::dict interface;
  interface["shape"] = nb::make_tuple(memory.bytes());
  interface["typestr"] = "|u1";
  interface["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(memory.data()), false);
  interface["strides"] = nb::none();
  interface["version"] = 3;
  return interface;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError, "this Memory was never initialized");
    return -1;
  }
  const auto& memory = *nb::inst_ptr<Memory>(self);
  if (memory.device() >= 0) {
    PyErr_SetString(PyExc_BufferError, "GPU memory has no buffer; use DLPack or the CUDA array interface");
    return -1;
  }
  return PyBuffer_FillInfo(view, self, memory.data(), static_cast<Py_ssize_t>(memory.bytes()), 0, flags);
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse<Memory>)},
                       {0, nullptr}};

}  // namespace

const Memory* as_memory(nb::handle object) {
  Memory* memory = nullptr;
  return nb::isinstance<Memory>(object) && nb::try_cast(object, memory, false) ? memory : nullptr;
}

void add_memory(nb::module_& module) {
  nb::class_<Memory>(
      module, "Memory", nb::type_slots(slots),
      "One rank's part of symmetric memory: bytes that arrays can be made from without a copy.\n\n"
      "Host memory has the buffer protocol (np.frombuffer), GPU memory the CUDA array interface, and "
      "both have DLPack (torch.from_dlpack gives uint8; use .view(dtype)). Arrays keep it alive.")
      .def_prop_ro(
          "ptr", [](const Memory& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); },
          "The address, in this process.")
      .def_prop_ro("nbytes", &Memory::bytes, "Size in bytes.")
      .def_prop_ro(
          "device", [](const Memory& memory) { return memory.device() < 0 ? -1 : memory.device(); },
          "The CUDA device that the address belongs to; -1 for host memory.")
      .def("__len__", &Memory::bytes)
      .def("__dlpack_device__", dlpack_device)
      .def("__dlpack__", dlpack, nb::sig("def __dlpack__(self, *args: object, **kwargs: object) -> object"))
      .def_prop_ro("__cuda_array_interface__", cuda_array_interface)
      .def("__repr__", [](const Memory& memory) {
        return "<onehop.Memory of " + std::to_string(memory.bytes()) + " bytes on " +
               (memory.device() < 0 ? "the host" : "cuda:" + std::to_string(memory.device())) + ">";
      });
}

}  // namespace onehop_python
