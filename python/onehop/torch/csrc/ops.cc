// SPDX-License-Identifier: Apache-2.0
// torch.ops.onehop.*: collectives as operators, for torch.compile and for code without a process group. The
// schemas and fake kernels are in _ops.py.
//
// An operator runs on the stream that is current, and returns when the call is enqueued (CPU tensors:
// complete). A group is given by its name; register_group() and unregister_group() keep the table.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/c_api.h"

#include "types.h"

namespace {

/// A group as register_group got it. Its caller keeps the group alive until it has called unregister_group.
struct Group {
  onehop_group_t* handle;
  int device;  ///< ONEHOP_DEVICE_HOST or an ordinal
};

class Groups {
 public:
  void add(const std::string& name, onehop_group_t* group) {
    const std::lock_guard lock(mutex_);
    groups_[name] = {group, onehop_group_device(group)};
  }
  void remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    groups_.erase(name);
  }
  Group find(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(name);
    TORCH_CHECK(found != groups_.end(), "onehop: no group is registered as '", name,
                "': call onehop.torch.register_group");
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Group, std::less<>> groups_;
};

Groups& groups() {
  static Groups instance;
  return instance;
}

/// Makes the call that `prepare(call, group)` fills in. If that throws, because the arguments are invalid, the other
/// ranks, which have made this call and wait for this one, get the same error.
template <class Prepare>
void run(std::string_view name, onehop_collective_t collective, const char* what, const Prepare& prepare) {
  const Group group = groups().find(name);
  onehop_call_t call;
  onehop_call_init(&call, sizeof call);
  call.collective = collective;
  try {
    prepare(call, group);
  } catch (const c10::Error& error) {
    (void)onehop_refuse_call(group.handle, collective, ONEHOP_ERROR_INVALID_ARGUMENT,
                             error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    (void)onehop_refuse_call(group.handle, collective, ONEHOP_ERROR_OUT_OF_RESOURCES, error.what());
    throw;
  }
  const onehop_status_t status = onehop_run(group.handle, &call, nullptr);
  TORCH_CHECK(status == ONEHOP_OK, "onehop: ", what, " in group '", name, "': ", onehop_last_error(), " [",
              onehop_status_name(status), "]");
}

onehop_dtype_t dtype_of(const at::Tensor& tensor) {
  const auto type = onehop_torch::same_type(tensor.scalar_type());
  TORCH_CHECK(type, "onehop: tensors of type ", tensor.scalar_type(),
              " are not supported: convert to a float type or an integer of 8, 32 or 64 bits");
  return *type;
}

onehop_op_t op_of(std::string_view name) {
  onehop_op_t op = ONEHOP_OP_SUM;
  TORCH_CHECK(onehop_op_parse(std::string(name).c_str(), &op) == ONEHOP_OK, "onehop: ", onehop_last_error());
  TORCH_CHECK(op != ONEHOP_OP_PREMUL_SUM,
              "onehop: operators have no factor for premul_sum: multiply the result");
  return op;
}

void require_contiguous(const at::Tensor& tensor, const char* what) {
  TORCH_CHECK(tensor.is_contiguous(), "onehop: ", what, " of sizes ", tensor.sizes(), " and strides ",
              tensor.strides(), " is not contiguous: pass a copy that ", what, ".contiguous() makes");
}

/// The current stream of the tensor's device. That must be the group's.
void* stream_of(const at::Tensor& tensor, const Group& group) {
  const at::Device device = tensor.device();
  const int ordinal = device.is_cpu() ? ONEHOP_DEVICE_HOST : device.index();
  TORCH_CHECK(ordinal == group.device, "onehop: the tensor is on ", device, ", this rank of the group on ",
              group.device == ONEHOP_DEVICE_HOST ? std::string("the CPU") : c10::str("cuda:", group.device),
              ": move the tensor, or register the process group for ", device);
  if (device.is_cpu()) return nullptr;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

/// What a call moves: `count` elements per block, on the current stream.
void set_data(onehop_call_t& call, const at::Tensor& in, const at::Tensor& out, int64_t count,
              const Group& group) {
  call.in = in.const_data_ptr();
  call.out = out.mutable_data_ptr();
  call.count = static_cast<size_t>(count);
  call.dtype = dtype_of(in);
  call.stream = stream_of(in, group);
}

/// Like `tensor`, with another size of its first dimension.
at::Tensor with_rows(const at::Tensor& tensor, int64_t rows) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = rows;
  return tensor.new_empty(sizes);
}

int64_t rows(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() > 0, "onehop: a tensor of 0 dimensions has no rows to gather or scatter");
  return tensor.size(0);
}

int64_t rows_per_rank(const at::Tensor& tensor, const Group& group) {
  const int ranks = onehop_group_size(group.handle);
  TORCH_CHECK(rows(tensor) % ranks == 0, "onehop: ", tensor.size(0), " rows are not divisible by ", ranks,
              " ranks");
  return tensor.size(0) / ranks;
}

/// `prepare(group)` checks the tensors before they are used, and may allocate `out`.
template <class Prepare>
void reduce_into(std::string_view name, std::string_view op, const at::Tensor& in, const at::Tensor& out,
                 const Prepare& prepare) {
  run(name, ONEHOP_COLLECTIVE_ALL_REDUCE, "all_reduce", [&](onehop_call_t& call, const Group& group) {
    prepare(group);
    call.op = op_of(op);
    set_data(call, in, out, in.numel(), group);
  });
}

at::Tensor all_reduce(const at::Tensor& x, std::string_view group, std::string_view op) {
  at::Tensor in, out;
  reduce_into(group, op, in, out, [&](const Group&) {
    in = x.contiguous();
    out = at::empty_like(in);
  });
  return out;
}

void all_reduce_(const at::Tensor& x, std::string_view group, std::string_view op) {
  reduce_into(group, op, x, x, [&](const Group&) { require_contiguous(x, "x"); });
}

void all_reduce_out(const at::Tensor& x, std::string_view group, std::string_view op, const at::Tensor& out) {
  reduce_into(group, op, x, out, [&](const Group&) {
    require_contiguous(x, "x");
    require_contiguous(out, "out");
    TORCH_CHECK(
        x.numel() == out.numel() && x.scalar_type() == out.scalar_type() && x.device() == out.device(),
        "onehop: out has ", out.numel(), " elements of type ", out.scalar_type(), " on ", out.device(),
        ", x ", x.numel(), " of type ", x.scalar_type(), " on ", x.device(), ": pass an out like x");
  });
}

at::Tensor all_gather(const at::Tensor& x, std::string_view group) {
  at::Tensor in, out;
  run(group, ONEHOP_COLLECTIVE_ALL_GATHER, "all_gather", [&](onehop_call_t& call, const Group& of) {
    in = x.contiguous();
    out = with_rows(in, rows(in) * onehop_group_size(of.handle));
    set_data(call, in, out, in.numel(), of);
  });
  return out;
}

at::Tensor reduce_scatter(const at::Tensor& x, std::string_view group, std::string_view op) {
  at::Tensor in, out;
  run(group, ONEHOP_COLLECTIVE_REDUCE_SCATTER, "reduce_scatter", [&](onehop_call_t& call, const Group& of) {
    in = x.contiguous();
    out = with_rows(in, rows_per_rank(in, of));
    call.op = op_of(op);
    set_data(call, in, out, out.numel(), of);
  });
  return out;
}

at::Tensor all_to_all_single(const at::Tensor& x, std::string_view group) {
  at::Tensor in, out;
  run(group, ONEHOP_COLLECTIVE_ALL_TO_ALL, "all_to_all_single", [&](onehop_call_t& call, const Group& of) {
    in = x.contiguous();
    (void)rows_per_rank(in, of);
    out = at::empty_like(in);
    set_data(call, in, out, in.numel() / onehop_group_size(of.handle), of);
  });
  return out;
}

void require_like(const at::Tensor& tensor, const char* what, at::IntArrayRef sizes, const at::Tensor& x) {
  TORCH_CHECK(
      tensor.sizes() == sizes && tensor.scalar_type() == x.scalar_type() && tensor.device() == x.device(),
      "onehop: ", what, " has sizes ", tensor.sizes(), ", type ", tensor.scalar_type(), " and is on ",
      tensor.device(), "; x, of sizes ", x.sizes(), ", needs one of sizes ", sizes, " and type ",
      x.scalar_type(), " on ", x.device());
}

void check_add_rms_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                        double eps) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK(type == at::kHalf || type == at::kBFloat16 || type == at::kFloat, "onehop: x is of type ", type,
              ": convert to float16, bfloat16 or float32");
  TORCH_CHECK(x.dim() > 0, "onehop: x has 0 dimensions: pass rows, such as x.view(1, -1)");
  require_contiguous(x, "x");
  require_like(residual, "residual", x.sizes(), x);
  require_like(weight, "weight", {x.size(-1)}, x);
  const at::MemOverlapStatus overlap = at::get_overlap_status(x, residual);
  TORCH_CHECK(overlap != at::MemOverlapStatus::Full && overlap != at::MemOverlapStatus::Partial,
              "onehop: x and residual share memory: pass residual.clone()");
  TORCH_CHECK(eps >= 0 && std::isfinite(eps), "onehop: eps is ", eps,
              ": pass a small number that is at least 0");
}

/// Three operators of PyTorch after the all-reduce: each of the results is rounded to the tensors' type.
void all_reduce_add_rms_norm_(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                              double eps, std::string_view group) {
  reduce_into(group, "sum", x, x, [&](const Group&) { check_add_rms_norm(x, residual, weight, eps); });
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  residual.add_(x);
  x.copy_(at::rms_norm(residual, {x.size(-1)}, weight, eps));
}

void implement(torch::Library& m) {
  m.impl("all_reduce", TORCH_FN(all_reduce));
  m.impl("all_reduce_", TORCH_FN(all_reduce_));
  m.impl("all_reduce_out", TORCH_FN(all_reduce_out));
  m.impl("all_reduce_add_rms_norm_", TORCH_FN(all_reduce_add_rms_norm_));
  m.impl("all_gather", TORCH_FN(all_gather));
  m.impl("reduce_scatter", TORCH_FN(reduce_scatter));
  m.impl("all_to_all_single", TORCH_FN(all_to_all_single));
}

}  // namespace

TORCH_LIBRARY_IMPL(onehop, CPU, m) {
  implement(m);
}
TORCH_LIBRARY_IMPL(onehop, CUDA, m) {
  implement(m);
}

extern "C" __attribute__((visibility("default"))) void onehop_torch_register_group(const char* name,
                                                                                   void* group) {
  groups().add(name, static_cast<onehop_group_t*>(group));
}

extern "C" __attribute__((visibility("default"))) void onehop_torch_unregister_group(const char* name) {
  groups().remove(name);
}
