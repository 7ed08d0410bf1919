// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "onehop/call.h"

#include "base/check.h"
#include "base/dtype_info.h"
#include "base/nccl.h"
#include "communicator.h"
#include "driver.h"
#include "group_queue.h"
#include "guard.h"

namespace onehop::nccl {
namespace {

template <class Value, std::size_t kSize>
bool is_in(const std::array<Value, kSize>& /*values*/, int number) {
  return number >= 0 && static_cast<std::size_t>(number) < kSize;
}

/// Sets how the call reduces. What is returned has to live until the call has been made.
std::shared_ptr<const void> set_reduction(Call& call, RedOp op, DataType type, Communicator& communicator) {
  if (is_known(op)) {
    call.op = kNcclOps[static_cast<std::size_t>(op)];
    return nullptr;
  }
  const std::optional<Factor> factor = communicator.reductions().find(op);
  if (!factor) {
    fail(ErrorCode::invalid_argument,
         "reduction {} is neither sum, prod, max, min or avg (0 to {}) nor one that the program made",
         static_cast<int>(op), kNcclOps.size() - 1);
  }
  require(factor->type == type, "reduction {} was made for data type {}, and the call has {}",
          static_cast<int>(op), static_cast<int>(factor->type), static_cast<int>(type));
  call.op = ReduceOp::premul_sum;
  call.options.own_factor_on_host = factor->element != nullptr;
  call.options.own_factor = factor->element != nullptr ? factor->element.get() : factor->on_device;
  return factor->element;
}

/// One rank's call as NCCL's functions have it. Fields that a collective does not use stay as they are.
struct Arguments {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  DataType type{};
  RedOp op{};
  int root = 0;
};

Result make(std::string_view function, Collective collective, Comm comm, CudaStream stream,
            const Arguments& arguments) noexcept {
  return note_for_group(guarded(function, [&] {
    std::shared_ptr<Communicator> communicator = find(comm);
    const CollectiveTraits& traits = traits_of(collective);
    Call call{.collective = collective,
              .in = arguments.in,
              .out = arguments.out,
              .count = arguments.count,
              .type = type_of(arguments.type),
              .root = Rank{arguments.root},
              .stream = {stream},
              .options = {.timeout = call_timeout()}};
    std::shared_ptr<const void> kept;
    if (traits.reduces) kept = set_reduction(call, arguments.op, arguments.type, *communicator);
    // What only moves is bytes to NCCL: one rank may send 4 floats that another receives as 16 bytes.
    if (!traits.reduces) {
      const std::size_t element = inline_size_of(call.type);
      require(call.count <= std::numeric_limits<std::size_t>::max() / element / kMaxHostRanks, "count {}",
              call.count);
      call.count *= element;
      call.type = DType::u8;
    }
    // NCCL ignores these pointers, so programs pass anything.
    const bool is_root = arguments.root == communicator->rank();
    if (traits.only_root_passes_in && !is_root) call.in = nullptr;
    if (traits.only_root_gets_out && !is_root) call.out = nullptr;
    // NCCL takes this call, though its result is undefined.
    if (collective == Collective::all_to_all && call.in == call.out && call.in != nullptr &&
        call.count != 0) {
      try {
        kept = copy_on_stream(call.in, static_cast<std::size_t>(communicator->size()) * call.count,
                              communicator->device(), stream);
      } catch (const Error&) {
        communicator->abort("an all-to-all in place found no memory");  // the other ranks wait for it
        throw;
      }
      call.in = kept.get();
    }
    call.options.symmetric = communicator->windows().promises(call, communicator->size());
    communicator->count_carried();
    call_or_queue(std::move(communicator), call, std::move(kept));
    return Result::success;
  }));
}

}  // namespace

bool is_known(DataType type) {
  return is_in(kNcclTypes, static_cast<int>(type));
}

bool can_ignore(const CallConfig* config) {
  if (config == nullptr) return true;
  // A program of an older version has a shorter one.
  const auto has = [config](std::size_t offset) { return config->size >= offset + sizeof(void*); };
  if (config->magic != CallConfig::kMagic) return false;
  const bool chooses = has(offsetof(CallConfig, algorithms_are_forced)) && config->algorithms != nullptr &&
                       *config->algorithms != '\0' && config->algorithms_are_forced != 0;
  const bool records = has(offsetof(CallConfig, launched)) && config->launched != nullptr;
  return !chooses && !records;
}

bool is_known(RedOp op) {
  return is_in(kNcclOps, static_cast<int>(op));
}

DType type_of(DataType type) {
  if (!is_known(type))
    fail(ErrorCode::invalid_argument, "data type {} is none of 0 to {}", static_cast<int>(type),
         kNcclTypes.size() - 1);
  return kNcclTypes[static_cast<std::size_t>(type)];
}

Result all_reduce(const void* in, void* out, std::size_t count, DataType type, RedOp op, Comm comm,
                  CudaStream stream) noexcept {
  return make("ncclAllReduce", Collective::all_reduce, comm, stream, {in, out, count, type, op});
}

Result all_gather(const void* in, void* out, std::size_t count, DataType type, Comm comm,
                  CudaStream stream) noexcept {
  return make("ncclAllGather", Collective::all_gather, comm, stream, {in, out, count, type});
}

Result reduce_scatter(const void* in, void* out, std::size_t count, DataType type, RedOp op, Comm comm,
                      CudaStream stream) noexcept {
  return make("ncclReduceScatter", Collective::reduce_scatter, comm, stream, {in, out, count, type, op});
}

Result broadcast(const void* in, void* out, std::size_t count, DataType type, int root, Comm comm,
                 CudaStream stream) noexcept {
  return make("ncclBroadcast", Collective::broadcast, comm, stream, {in, out, count, type, {}, root});
}

Result broadcast_in_place(void* data, std::size_t count, DataType type, int root, Comm comm,
                          CudaStream stream) noexcept {
  return make("ncclBcast", Collective::broadcast, comm, stream, {data, data, count, type, {}, root});
}

Result reduce(const void* in, void* out, std::size_t count, DataType type, RedOp op, int root, Comm comm,
              CudaStream stream) noexcept {
  return make("ncclReduce", Collective::reduce, comm, stream, {in, out, count, type, op, root});
}

Result all_to_all(const void* in, void* out, std::size_t count, DataType type, Comm comm,
                  CudaStream stream) noexcept {
  return make("ncclAlltoAll", Collective::all_to_all, comm, stream, {in, out, count, type});
}

Result gather(const void* in, void* out, std::size_t count, DataType type, int root, Comm comm,
              CudaStream stream) noexcept {
  return make("ncclGather", Collective::gather, comm, stream, {in, out, count, type, {}, root});
}

Result scatter(const void* in, void* out, std::size_t count, DataType type, int root, Comm comm,
               CudaStream stream) noexcept {
  return make("ncclScatter", Collective::scatter, comm, stream, {in, out, count, type, {}, root});
}

Result send(const void* in, std::size_t count, DataType type, int peer, Comm comm,
            CudaStream stream) noexcept {
  return make("ncclSend", Collective::send, comm, stream, {in, nullptr, count, type, {}, peer});
}

Result recv(void* out, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream) noexcept {
  return make("ncclRecv", Collective::recv, comm, stream, {nullptr, out, count, type, {}, peer});
}

}  // namespace onehop::nccl
