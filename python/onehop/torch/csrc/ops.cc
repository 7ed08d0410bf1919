// SPDX-License-Identifier: Apache-2.0
// torch.ops.onehop.*: collectives as operators, for torch.compile and for code without a process group. Uses
// torch's stable ABI only. The schemas and fake kernels are in _ops.py.
//
// An operator runs on the stream that is current, and returns when the call is enqueued (CPU tensors:
// complete). A group is given by its name; register_group() and unregister_group() keep the table.
#include <dlfcn.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "onehop/c_api.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

/// Names of groups. The caller of register_group keeps the group alive until it has called unregister_group.
class Groups {
 public:
  void add(const std::string& name, onehop_group_t* group) {
    const std::lock_guard lock(mutex_);
    groups_[name] = group;
  }
  void remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    groups_.erase(name);
  }
  onehop_group_t* find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(name);
    STD_TORCH_CHECK(found != groups_.end(), "onehop: no group is registered as '", name,
                    "': call onehop.torch.register_group");
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, onehop_group_t*> groups_;
};

Groups& groups() {
  static Groups instance;
  return instance;
}

void check(onehop_status_t status, const char* what, const std::string& group) {
  STD_TORCH_CHECK(status == ONEHOP_OK, "onehop: ", what, " in group '", group, "': ", onehop_last_error(),
                  " [", onehop_status_name(status), "]");
}

onehop_dtype_t dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Half:
      return ONEHOP_DTYPE_F16;
    case ScalarType::BFloat16:
      return ONEHOP_DTYPE_BF16;
    case ScalarType::Float:
      return ONEHOP_DTYPE_F32;
    case ScalarType::Double:
      return ONEHOP_DTYPE_F64;
    case ScalarType::Float8_e4m3fn:
      return ONEHOP_DTYPE_E4M3;
    case ScalarType::Float8_e5m2:
      return ONEHOP_DTYPE_E5M2;
    case ScalarType::Char:
      return ONEHOP_DTYPE_I8;
    case ScalarType::Byte:
      return ONEHOP_DTYPE_U8;
    case ScalarType::Int:
      return ONEHOP_DTYPE_I32;
    case ScalarType::UInt32:
      return ONEHOP_DTYPE_U32;
    case ScalarType::Long:
      return ONEHOP_DTYPE_I64;
    case ScalarType::UInt64:
      return ONEHOP_DTYPE_U64;
    default:
      STD_TORCH_CHECK(false, "onehop: tensors of this type (number ", static_cast<int>(tensor.scalar_type()),
                      ") are not supported: convert to a float type or an integer of 8, 32 or 64 bits");
  }
}

onehop_op_t op_of(const std::string& name) {
  onehop_op_t op = ONEHOP_OP_SUM;
  STD_TORCH_CHECK(onehop_op_parse(name.c_str(), &op) == ONEHOP_OK, "onehop: ", onehop_last_error());
  STD_TORCH_CHECK(op != ONEHOP_OP_PREMUL_SUM,
                  "onehop: operators have no factor for premul_sum: multiply the result");
  return op;
}

/// The current stream of the tensor's device. The function is in libtorch_cuda, which torch has loaded if
/// there are CUDA tensors; linking it would tie this library to builds of torch with CUDA.
void* stream_of(const Tensor& tensor) {
  if (tensor.is_cpu()) return nullptr;
  using Function = AOTITorchError (*)(int32_t, void**);
  static const auto current = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library == nullptr
               ? nullptr
               : reinterpret_cast<Function>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  STD_TORCH_CHECK(current != nullptr, "onehop: this torch has no CUDA streams");
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(current(tensor.get_device_index(), &stream));
  return stream;
}

Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

/// Like `tensor`, with another size of its first dimension.
Tensor with_rows(const Tensor& tensor, int64_t rows) {
  std::vector<int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[0] = rows;
  return torch::stable::new_empty(tensor, sizes);
}

int64_t rows(const Tensor& tensor) {
  STD_TORCH_CHECK(tensor.dim() > 0, "onehop: a tensor of 0 dimensions has no rows to gather or scatter");
  return tensor.size(0);
}

int64_t rows_per_rank(const Tensor& tensor, int ranks) {
  STD_TORCH_CHECK(rows(tensor) % ranks == 0, "onehop: ", tensor.size(0), " rows are not divisible by ", ranks,
                  " ranks");
  return tensor.size(0) / ranks;
}

void reduce_into(const Tensor& in, const Tensor& out, const std::string& group, const std::string& op) {
  check(onehop_all_reduce(groups().find(group), in.const_data_ptr(), out.mutable_data_ptr(), in.numel(),
                          dtype_of(in), op_of(op), stream_of(in), nullptr, nullptr),
        "all_reduce", group);
}

Tensor all_reduce(const Tensor& x, const std::string& group, const std::string& op) {
  const Tensor in = dense(x);
  Tensor out = torch::stable::empty_like(in);
  reduce_into(in, out, group, op);
  return out;
}

void all_reduce_(Tensor x, const std::string& group, const std::string& op) {
  STD_TORCH_CHECK(x.is_contiguous(), "onehop: all_reduce_ needs a contiguous tensor");
  reduce_into(x, x, group, op);
}

void all_reduce_out(const Tensor& x, const std::string& group, const std::string& op, Tensor out) {
  STD_TORCH_CHECK(x.is_contiguous() && out.is_contiguous(),
                  "onehop: all_reduce_out needs contiguous tensors");
  STD_TORCH_CHECK(x.numel() == out.numel() && x.scalar_type() == out.scalar_type(),
                  "onehop: all_reduce_out: input and output differ in type or number of elements");
  reduce_into(x, out, group, op);
}

Tensor all_gather(const Tensor& x, const std::string& group) {
  onehop_group_t* handle = groups().find(group);
  const Tensor in = dense(x);
  Tensor out = with_rows(in, rows(in) * onehop_group_size(handle));
  check(onehop_all_gather(handle, in.const_data_ptr(), out.mutable_data_ptr(), in.numel(), dtype_of(in),
                          stream_of(in), nullptr, nullptr),
        "all_gather", group);
  return out;
}

Tensor reduce_scatter(const Tensor& x, const std::string& group, const std::string& op) {
  onehop_group_t* handle = groups().find(group);
  const Tensor in = dense(x);
  Tensor out = with_rows(in, rows_per_rank(in, onehop_group_size(handle)));
  check(onehop_reduce_scatter(handle, in.const_data_ptr(), out.mutable_data_ptr(), out.numel(), dtype_of(in),
                              op_of(op), stream_of(in), nullptr, nullptr),
        "reduce_scatter", group);
  return out;
}

Tensor all_to_all_single(const Tensor& x, const std::string& group) {
  onehop_group_t* handle = groups().find(group);
  const Tensor in = dense(x);
  rows_per_rank(in, onehop_group_size(handle));
  Tensor out = torch::stable::empty_like(in);
  check(onehop_all_to_all(handle, in.const_data_ptr(), out.mutable_data_ptr(),
                          in.numel() / onehop_group_size(handle), dtype_of(in), stream_of(in), nullptr,
                          nullptr),
        "all_to_all_single", group);
  return out;
}

void implement(torch::stable::detail::StableLibrary& m) {
  m.impl("all_reduce", TORCH_BOX(&all_reduce));
  m.impl("all_reduce_", TORCH_BOX(&all_reduce_));
  m.impl("all_reduce_out", TORCH_BOX(&all_reduce_out));
  m.impl("all_gather", TORCH_BOX(&all_gather));
  m.impl("reduce_scatter", TORCH_BOX(&reduce_scatter));
  m.impl("all_to_all_single", TORCH_BOX(&all_to_all_single));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(onehop, CPU, m) {
  implement(m);
}
STABLE_TORCH_LIBRARY_IMPL(onehop, CUDA, m) {
  implement(m);
}

extern "C" __attribute__((visibility("default"))) void onehop_torch_register_group(const char* name,
                                                                                   void* group) {
  groups().add(name, static_cast<onehop_group_t*>(group));
}

extern "C" __attribute__((visibility("default"))) void onehop_torch_unregister_group(const char* name) {
  groups().remove(name);
}
