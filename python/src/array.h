// SPDX-License-Identifier: Apache-2.0
// Memory that Python objects describe: tensors of PyTorch, arrays of NumPy and CuPy, and anything with DLPack, the
// CUDA array interface or the buffer protocol. Nothing here needs these packages.
#pragma once

#include <nanobind/nanobind.h>
#include <onehop/c_api.h>

#include <cstddef>
#include <string>

namespace onehop_python {

namespace nb = nanobind;

/// Where a call's stream comes from if the caller names none.
enum class Framework { none, torch, cupy };

/// An element type that the C API lacks: calls carry booleans as bytes of 0 and 1.
inline constexpr onehop_dtype_t kBool = 1 << 16;
/// The size and name of an element type, kBool included.
[[nodiscard]] inline std::size_t size_of(onehop_dtype_t dtype) {
  return dtype == kBool ? 1 : onehop_dtype_size(dtype);
}
[[nodiscard]] inline const char* name_of(onehop_dtype_t dtype) {
  return dtype == kBool ? "bool" : onehop_dtype_name(dtype);
}

/// C-contiguous memory and what holds it alive.
class Array {
 public:
  Array() = default;
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  void* data = nullptr;
  std::size_t count = 0;
  onehop_dtype_t dtype = -1;  ///< kBool, or one of the C API; -1: unknown
  bool read_only = false;
  bool on_gpu = false;
  int device = -1;  ///< CUDA ordinal; -1: unknown, or host memory
  Framework framework = Framework::none;

  /// Takes over a filled buffer view.
  void hold(const Py_buffer& view);
  void hold(nb::object owner) { owner_ = std::move(owner); }

 private:
  nb::object owner_;
  Py_buffer view_{};
  bool has_view_ = false;
};

/// Reads `object`. `dtype`, if not None, says how to interpret the bytes. `name` is the parameter, for messages.
/// Raises onehop.InvalidArgument if there is no contiguous memory of a known type.
Array read_array(nb::handle object, nb::handle dtype, const char* name);

/// Reads a name such as "bf16", or an element type of PyTorch or NumPy.
onehop_dtype_t read_dtype(nb::handle dtype);
/// The names that frameworks have for onehop's types: {"f32": "float32", ...}.
nb::dict long_names();

/// Reads a cudaStream_t: an integer, or an object with `cuda_stream`, `ptr` or `__cuda_stream__`. None means the
/// current stream of `framework` on `device`.
void* read_stream(nb::handle stream, Framework framework, int device);
/// The framework whose current stream calls without an array use: PyTorch, if it is imported, else CuPy.
Framework loaded_framework();

/// Reads seconds (a number or a datetime.timedelta) as milliseconds. None means ONEHOP_TIMEOUT_DEFAULT.
int64_t read_timeout(nb::handle timeout);

}  // namespace onehop_python
