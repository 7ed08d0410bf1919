// SPDX-License-Identifier: Apache-2.0
#include "array.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "dlpack.h"
#include "errors.h"
#include "memory.h"
#include "text.h"

namespace onehop_python {
namespace {

/// A type of a package that this process may or may not have imported. Never imports it.
class OptionalType {
 public:
  constexpr OptionalType(const char* module, const char* name) : module_(module), name_(name) {}
  bool is_type_of(nb::handle object) {
    if (type_ == nullptr && !find()) return false;
    return PyObject_TypeCheck(object.ptr(), type_);
  }
  [[nodiscard]] bool find() {
    if (type_ != nullptr) return true;
    if (key_ == nullptr) key_ = PyUnicode_InternFromString(module_);
    const nb::object module = nb::steal(PyImport_GetModule(key_));
    if (!module.is_valid()) {
      PyErr_Clear();
      return false;
    }
    // A module that is being imported has no such attribute yet. Kept for good, as the module is.
    type_ = reinterpret_cast<PyTypeObject*>(nb::getattr(module, name_, nb::none()).release().ptr());
    if (!PyType_Check(reinterpret_cast<PyObject*>(type_))) type_ = nullptr;
    return type_ != nullptr;
  }

 private:
  const char* module_;
  const char* name_;
  PyObject* key_ = nullptr;
  PyTypeObject* type_ = nullptr;
};

// Guarded by the GIL.
OptionalType torch_tensor("torch", "Tensor");
OptionalType cupy_array("cupy", "ndarray");
OptionalType numpy_array("numpy", "ndarray");

[[noreturn]] void raise_not_contiguous(const char* name, nb::handle object) {
  // A copy of a sparse PyTorch tensor would not be contiguous either.
  if (nb::cast<bool>(nb::bool_(nb::getattr(object, "is_sparse", nb::bool_(false)))))
    raise_invalid(std::string(name) + ", " + type_text(object) + ", is sparse; pass x.to_dense()");
  raise_invalid(std::string(name) + ", " + type_text(object) +
                ", is not C-contiguous; pass a contiguous copy of it");
}

onehop_dtype_t parse_dtype(const std::string& text) {
  if (text == name_of(kBool)) return kBool;
  onehop_dtype_t dtype = -1;
  // Not its message, which names only what was parsed.
  return onehop_dtype_parse(text.c_str(), &dtype) == ONEHOP_OK ? dtype : -1;
}

/// The name by which onehop may know an element type: 'float32' of torch.float32, np.dtype('f4') and np.float32.
std::string dtype_text(nb::handle dtype) {
  constexpr const char* kName = "dtype";
  if (PyUnicode_Check(dtype.ptr())) return read_text_of(dtype, kName);
  if (PyType_Check(dtype.ptr())) return read_text_of(dtype.attr("__name__"), kName);
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  if (!name.is_none()) return read_text_of(name, kName);
  const std::string text = read_text_of(dtype, kName);
  constexpr std::string_view kTorch = "torch.";
  return text.starts_with(kTorch) ? text.substr(kTorch.size()) : text;
}

std::string known_dtypes() {
  std::string names;
  for (onehop_dtype_t each = 0; onehop_dtype_size(each) != 0; ++each)
    names += std::string(onehop_dtype_name(each)) + ", ";
  return names + name_of(kBool);
}

[[noreturn]] void raise_unknown_dtype(const std::string& what, const std::string& text) {
  raise_invalid(what + "'" + text + "' is not an element type of onehop; there are " + known_dtypes() +
                "; dtype= interprets the bytes as another type");
}

/// A type that onehop and DLPack have.
struct KnownType {
  DLDataTypeCode code;
  std::int64_t bits;
  onehop_dtype_t dtype;
  std::string name;
};

const std::vector<KnownType>& known_types() {
  static const std::vector<KnownType> all = [] {
    std::vector<KnownType> types;
    for (const DLTypeName& each : kDLTypeNames) {
      for (const int bits : {8, 16, 32, 64}) {
        const std::string name = each.with(bits);
        if (const onehop_dtype_t dtype = parse_dtype(name); dtype >= 0)
          types.push_back({each.code, bits, dtype, name});
      }
    }
    return types;
  }();
  return all;
}

/// -1 if onehop has none like it.
onehop_dtype_t dtype_of(std::uint8_t code, std::int64_t bits) {
  if (code == kDLBool) return bits == 8 ? kBool : -1;
  for (const KnownType& each : known_types()) {
    if (each.code == code && each.bits == bits) return each.dtype;
  }
  return -1;
}

/// The type of a buffer's elements, after PEP 3118. -1 if onehop has none like it.
onehop_dtype_t dtype_of_format(const char* format, Py_ssize_t item_size) {
  if (format == nullptr) return ONEHOP_DTYPE_U8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return -1;
  const auto is_one_of = [format](std::string_view kinds) { return kinds.find(*format) != kinds.npos; };
  const std::int64_t bits = 8 * item_size;
  if (is_one_of("?")) return dtype_of(kDLBool, bits);
  if (is_one_of("efd")) return dtype_of(kDLFloat, bits);
  if (is_one_of("bhilq")) return dtype_of(kDLInt, bits);
  return is_one_of("BHILQ") ? dtype_of(kDLUInt, bits) : -1;
}

/// Sets type and count of `bytes` bytes, of `own` type unless the caller names one.
void set_elements(Array& array, std::size_t bytes, onehop_dtype_t own, nb::handle dtype, const char* name,
                  nb::handle object) {
  array.dtype = dtype.is_none() ? own : read_dtype(dtype);
  if (array.dtype < 0) {
    const nb::object type = nb::getattr(object, "dtype", nb::none());
    raise_unknown_dtype(std::string(name) + ": ", type.is_none() ? type_text(object) : dtype_text(type));
  }
  const std::size_t size = size_of(array.dtype);
  if (bytes % size != 0) {
    raise_invalid(std::string(name) + " has " + std::to_string(bytes) + " bytes, not a multiple of the " +
                  std::to_string(size) + " of " + name_of(array.dtype));
  }
  array.count = bytes / size;
}

/// Types of frameworks are few objects that live as long as their module.
onehop_dtype_t cached_dtype(nb::handle dtype) {
  static PyObject* const known = PyDict_New();
  if (PyObject* const found = PyDict_GetItemWithError(known, dtype.ptr())) return int(PyLong_AsLong(found));
  PyErr_Clear();
  const onehop_dtype_t value = parse_dtype(dtype_text(dtype));
  if (PyDict_SetItem(known, dtype.ptr(), nb::int_(value).ptr()) != 0) PyErr_Clear();  // not hashable
  return value;
}

bool is_true(nb::handle value) {
  const int answer = PyObject_IsTrue(value.ptr());
  if (answer < 0) throw nb::python_error();
  return answer != 0;
}

void* as_pointer(nb::handle address) {
  void* const pointer = PyLong_AsVoidPtr(address.ptr());
  if (pointer == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
  return pointer;
}

std::size_t as_size(nb::handle value) {
  const std::size_t size = PyLong_AsSize_t(value.ptr());
  if (size == static_cast<std::size_t>(-1) && PyErr_Occurred() != nullptr) throw nb::python_error();
  return size;
}

Array read_torch(nb::handle tensor, nb::handle dtype, const char* name) {
  Array array;
  if (!is_true(tensor.attr("is_contiguous")())) raise_not_contiguous(name, tensor);
  if (is_true(tensor.attr("is_neg")()))
    raise_invalid(std::string(name) + " is a negated view; pass x.resolve_neg()");
  array.data = as_pointer(tensor.attr("data_ptr")());
  array.device = static_cast<int>(PyLong_AsLong(nb::object(tensor.attr("get_device")()).ptr()));
  array.on_gpu = array.device >= 0;
  array.framework = Framework::torch;
  const nb::object type = tensor.attr("dtype");
  const onehop_dtype_t own = cached_dtype(type);
  const std::size_t count = as_size(tensor.attr("numel")());
  // A DTensor or AsyncCollectiveTensor, or a tensor on device meta.
  if (array.data == nullptr && count > 0) {
    raise_invalid(std::string(name) + ", " + type_text(tensor) +
                  ", has no memory of its own; pass a tensor that has: of a DTensor x.to_local(), of an "
                  "AsyncCollectiveTensor x.wait()");
  }
  if (dtype.is_none() && own >= 0) {
    array.dtype = own;
    array.count = count;
  } else {
    // `dtype` interprets the stored numbers, which are not conjugated.
    if (!dtype.is_none() && is_true(tensor.attr("is_conj")()))
      raise_invalid(std::string(name) + " is a conjugated view; pass x.resolve_conj()");
    set_elements(array, count * as_size(tensor.attr("element_size")()), own, dtype, name, tensor);
  }
  array.hold(nb::borrow(tensor));
  return array;
}

Array read_cupy(nb::handle cupy, nb::handle dtype, const char* name) {
  Array array;
  if (!is_true(cupy.attr("flags").attr("c_contiguous"))) raise_not_contiguous(name, cupy);
  array.data = as_pointer(cupy.attr("data").attr("ptr"));
  array.device = static_cast<int>(PyLong_AsLong(nb::object(cupy.attr("device").attr("id")).ptr()));
  array.on_gpu = true;
  array.framework = Framework::cupy;
  set_elements(array, as_size(cupy.attr("nbytes")), cached_dtype(cupy.attr("dtype")), dtype, name, cupy);
  array.hold(nb::borrow(cupy));
  return array;
}

/// `order` is how a description of elements begins. None is checked where `dtype` interprets the bytes.
void require_native_order(char order, nb::handle dtype, const char* name, nb::handle object) {
  if ((order == '>' || order == '!') && dtype.is_none()) {
    raise_invalid(std::string(name) + ", " + type_text(object) +
                  ", is big-endian; pass x.astype(x.dtype.newbyteorder('='))");
  }
}

/// Gets a view of any strides, so that this module words the error.
bool get_view(nb::handle object, Py_buffer& view) {
  return PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDED_RO | PyBUF_FORMAT) == 0;
}

Array read_view(nb::handle object, const Py_buffer& view, nb::handle dtype, const char* name) {
  Array array;
  array.hold(view);
  if (PyBuffer_IsContiguous(&view, 'C') == 0) raise_not_contiguous(name, object);
  array.data = view.buf;
  array.read_only = view.readonly != 0;
  require_native_order(view.format == nullptr ? '\0' : *view.format, dtype, name, object);
  set_elements(array, static_cast<std::size_t>(view.len), dtype_of_format(view.format, view.itemsize), dtype,
               name, object);
  return array;
}

/// Shape times size of an element; raises if `strides` are not those of C order. `strides` may be null.
template <class Extent>
std::size_t bytes_of(const Extent* shape, const Extent* strides, std::size_t dimensions, std::size_t item,
                     std::size_t stride_unit, const char* name, nb::handle object) {
  std::size_t bytes = item;
  bool contiguous = true;
  bool empty = false;
  for (std::size_t i = dimensions; i-- > 0;) {
    if (shape[i] < 0) raise_invalid(std::string(name) + ": its shape has a negative number");
    empty = empty || shape[i] == 0;
    if (strides != nullptr && shape[i] > 1)
      contiguous = contiguous && static_cast<std::size_t>(strides[i]) * stride_unit == bytes;
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(shape[i]), &bytes))
      raise_invalid(std::string(name) + ": its shape exceeds the address space");
  }
  if (empty) return 0;
  if (!contiguous) raise_not_contiguous(name, object);
  return bytes;
}

/// Without synchronization: for GPU memory `stream` is -1, since a call orders itself on its own stream.
Array read_dlpack(nb::handle object, nb::handle dtype, const char* name) {
  const nb::object where = object.attr("__dlpack_device__")();
  const int type = nb::cast<int>(nb::object(where[0]));
  const bool on_gpu = type == kDLCUDA || type == kDLCUDAManaged;
  if (!on_gpu && type != kDLCPU && type != kDLCUDAHost) {
    raise_invalid(std::string(name) + " is on a device of DLPack type " + std::to_string(type) +
                  "; onehop takes host and CUDA memory");
  }
  const nb::object capsule =
      on_gpu ? object.attr("__dlpack__")(nb::arg("stream") = -1) : object.attr("__dlpack__")();
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw nb::python_error();
  const DLTensor& tensor = managed->dl_tensor;
  if (tensor.ndim < 0 || tensor.dtype.bits % 8 != 0)
    raise_invalid(std::string(name) + ": its DLPack tensor has " + std::to_string(tensor.dtype.bits) +
                  " bits per element");
  Array array;
  array.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  array.on_gpu = on_gpu;
  array.device = on_gpu ? tensor.device.device_id : -1;
  const std::size_t item = std::size_t{tensor.dtype.bits} / 8 * tensor.dtype.lanes;
  const std::size_t bytes =
      bytes_of(tensor.shape, tensor.strides, static_cast<std::size_t>(tensor.ndim), item, item, name, object);
  const onehop_dtype_t own = tensor.dtype.lanes == 1 ? dtype_of(tensor.dtype.code, tensor.dtype.bits) : -1;
  set_elements(array, bytes, own, dtype, name, object);
  array.hold(capsule);  // frees the tensor, which nobody takes over
  return array;
}

/// `__array_interface__` or `__cuda_array_interface__`. The type descriptor knows no bf16 and fp8: the object's
/// `dtype`, if it has one, names them.
Array read_interface(nb::handle object, const nb::object& interface, bool on_gpu, nb::handle dtype,
                     const char* name) {
  Array array;
  const nb::object data = interface["data"];
  array.data = as_pointer(nb::object(data[0]));
  array.read_only = is_true(nb::object(data[1]));
  array.on_gpu = on_gpu;
  const std::string type = read_text_of(nb::object(interface["typestr"]), "typestr");
  if (type.size() < 3) raise_invalid(std::string(name) + ": its typestr is '" + type + "'");
  const std::size_t item = std::strtoul(type.c_str() + 2, nullptr, 10);
  std::vector<long long> shape;
  for (const nb::handle extent : nb::object(interface["shape"])) shape.push_back(nb::cast<long long>(extent));
  std::vector<long long> strides;
  const nb::object given = interface.attr("get")("strides");
  if (!given.is_none()) {
    for (const nb::handle stride : given) strides.push_back(nb::cast<long long>(stride));
    if (strides.size() != shape.size())
      raise_invalid(std::string(name) + ": shape and strides differ in length");
  }
  const std::size_t bytes =
      bytes_of(shape.data(), strides.empty() ? nullptr : strides.data(), shape.size(), item, 1, name, object);
  require_native_order(type[0], dtype, name, object);
  const nb::object named = nb::getattr(object, "dtype", nb::none());
  onehop_dtype_t own =
      type.substr(1) == "b1" ? kBool : parse_dtype(type.substr(1, 1) + std::to_string(item * 8));
  if (own < 0 && !named.is_none()) own = cached_dtype(named);
  set_elements(array, bytes, own, dtype, name, object);
  array.hold(nb::borrow(object));
  return array;
}

Array read_buffer(nb::handle object, nb::handle dtype, const char* name) {
  Py_buffer view;
  if (!get_view(object, view)) throw nb::python_error();
  return read_view(object, view, dtype, name);
}

Array read_numpy(nb::handle array, nb::handle dtype, const char* name) {
  Py_buffer view;
  if (get_view(array, view)) return read_view(array, view, dtype, name);
  // NumPy exports no buffer of the types that other packages add to it.
  PyErr_Clear();
  return read_interface(array, array.attr("__array_interface__"), false, dtype, name);
}

}  // namespace

Array::Array(Array&& other) noexcept {
  *this = std::move(other);
}

Array& Array::operator=(Array&& other) noexcept {
  std::swap(data, other.data);
  std::swap(count, other.count);
  std::swap(dtype, other.dtype);
  std::swap(read_only, other.read_only);
  std::swap(on_gpu, other.on_gpu);
  std::swap(device, other.device);
  std::swap(framework, other.framework);
  std::swap(owner_, other.owner_);
  std::swap(view_, other.view_);
  std::swap(has_view_, other.has_view_);
  return *this;
}

Array::~Array() {
  if (has_view_) PyBuffer_Release(&view_);
}

void Array::hold(const Py_buffer& view) {
  view_ = view;
  has_view_ = true;
}

namespace {

Array read_any(nb::handle object, nb::handle dtype, const char* name) {
  if (torch_tensor.is_type_of(object)) return read_torch(object, dtype, name);
  if (numpy_array.is_type_of(object)) return read_numpy(object, dtype, name);
  if (cupy_array.is_type_of(object)) return read_cupy(object, dtype, name);
  if (const Memory* const memory = as_memory(object)) {
    Array array;
    array.data = memory->data();
    array.on_gpu = memory->device() >= 0;
    array.device = memory->device();
    set_elements(array, memory->bytes(), ONEHOP_DTYPE_U8, dtype, name, object);
    array.hold(nb::borrow(object));
    return array;
  }
  if (nb::hasattr(object, "__dlpack__") && nb::hasattr(object, "__dlpack_device__"))
    return read_dlpack(object, dtype, name);
  const nb::object interface = nb::getattr(object, "__cuda_array_interface__", nb::none());
  if (!interface.is_none()) return read_interface(object, interface, true, dtype, name);
  if (PyObject_CheckBuffer(object.ptr()) != 0) return read_buffer(object, dtype, name);
  raise_invalid(std::string(name) + " is " + type_text(object) +
                ", not an array: onehop takes tensors of PyTorch, arrays of NumPy and CuPy, and objects with "
                "DLPack, the CUDA array interface or the buffer protocol");
}

}  // namespace

Array read_array(nb::handle object, nb::handle dtype, const char* name) {
  try {
    return read_any(object, dtype, name);
  } catch (const std::bad_cast&) {
    raise_invalid(std::string(name) + ", " + type_text(object) + ", describes its memory in an unknown way");
  }
}

onehop_dtype_t read_dtype(nb::handle dtype) {
  const std::string text = dtype_text(dtype);
  const onehop_dtype_t known = parse_dtype(text);
  if (known < 0)
    raise_invalid("dtype '" + text + "' is not an element type of onehop; there are " + known_dtypes());
  return known;
}

nb::dict long_names() {
  nb::dict names;
  for (const KnownType& each : known_types()) names[name_of(each.dtype)] = nb::str(each.name.c_str());
  return names;
}

Framework loaded_framework() {
  if (torch_tensor.find()) return Framework::torch;
  return cupy_array.find() ? Framework::cupy : Framework::none;
}

namespace {

void* current_stream(Framework framework, int device) {
  switch (framework) {
    case Framework::torch: {
      // What torch.cuda.current_stream(device).cuda_stream is, without the object. Missing without CUDA.
      static PyObject* const function =
          nb::getattr(nb::module_::import_("torch._C"), "_cuda_getCurrentRawStream", nb::none())
              .release()
              .ptr();
      if (function == Py_None) return nullptr;
      return as_pointer(nb::handle(function)(device));
    }
    case Framework::cupy:
      return as_pointer(
          nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")(device).attr("ptr"));
    case Framework::none:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

void* read_stream(nb::handle stream, Framework framework, int device) {
  if (stream.is_none()) return current_stream(framework, device);
  if (PyLong_Check(stream.ptr())) return as_pointer(stream);
  for (const char* const attribute : {"cuda_stream", "ptr"}) {
    const nb::object value = nb::getattr(stream, attribute, nb::none());
    if (PyLong_Check(value.ptr())) return as_pointer(value);
  }
  const nb::object protocol = nb::getattr(stream, "__cuda_stream__", nb::none());
  if (!protocol.is_none()) {
    const nb::object pair = protocol();
    if (PyTuple_Check(pair.ptr()) && PyTuple_Size(pair.ptr()) == 2) return as_pointer(nb::object(pair[1]));
  }
  raise_invalid("stream is " + quoted(stream) +
                ", not a CUDA stream: pass an integer or an object with cuda_stream, ptr or __cuda_stream__");
}

int64_t read_timeout(nb::handle timeout) {
  if (timeout.is_none()) return ONEHOP_TIMEOUT_DEFAULT;
  const nb::object method = nb::getattr(timeout, "total_seconds", nb::none());
  const nb::object number = method.is_none() ? nb::borrow(timeout) : nb::object(method());
  const bool is_number = PyFloat_Check(number.ptr()) || PyLong_Check(number.ptr());
  const double seconds = is_number ? PyFloat_AsDouble(number.ptr()) : -1;
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  // A year of milliseconds is far below what the library takes.
  constexpr double kLongest = 366.0 * 24 * 3600;
  if (!(seconds >= 0 && seconds <= kLongest)) {
    raise_invalid("timeout is " + quoted(timeout) +
                  "; pass seconds from 0 to one year, or a datetime.timedelta");
  }
  const double milliseconds = seconds * 1000;
  const auto whole = static_cast<int64_t>(milliseconds);
  return static_cast<double>(whole) < milliseconds ? whole + 1 : whole;
}

}  // namespace onehop_python
