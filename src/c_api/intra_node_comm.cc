// SPDX-License-Identifier: Apache-2.0
#include "onehop/intra_node_comm.h"

#include "c_api/convert.h"
#include "c_api/guard.h"
#include "c_api/handles.h"

using namespace onehop;
using namespace onehop::c_api;

struct onehop_intra_node_comm {
  IntraNodeComm comm;
};

namespace {

onehop_intra_node_options_t intra_node_defaults() {
  onehop_intra_node_options_t defaults{};
  defaults.buffer_bytes = IntraNodeComm::kDefaultBufferBytes;
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  defaults.device = ONEHOP_DEVICE_HOST;
  return defaults;
}

IntraNodeOptions to_options(const onehop_intra_node_options_t& given) {
  IntraNodeOptions out;
  out.device = DeviceId{given.device};
  // Invalid options must be reported on all ranks: rendezvous refuses them.
  out.timeout = as_timeout(given.timeout_ms, out.timeout);
  if (given.name != nullptr) out.name = given.name;
  out.allow_overlapping_devices = given.allow_overlapping_devices != 0;
  if (given.topology_json != nullptr) out.topology = Topology::from_json(given.topology_json);
  return out;
}

IntraNodeComm& in(onehop_intra_node_comm_t* comm) {
  return deref(comm, "comm").comm;
}
const IntraNodeComm& in(const onehop_intra_node_comm_t* comm) {
  return deref(comm, "comm").comm;
}

/// A number that is no algorithm becomes a value that the call refuses on all ranks.
Algorithm as_algorithm(onehop_algorithm_t algorithm) {
  return static_cast<Algorithm>(algorithm >= 0 && algorithm < kAlgorithmCount ? algorithm : kNoEnumerator);
}

}  // namespace

extern "C" {

onehop_status_t onehop_intra_node_comm_is_enabled(int* enabled) {
  return guard([&] { deref(enabled, "enabled") = IntraNodeComm::is_enabled() ? 1 : 0; });
}

void onehop_intra_node_options_init(onehop_intra_node_options_t* options, size_t size) {
  init_options(options, size, intra_node_defaults());
}

onehop_status_t onehop_intra_node_comm_create(onehop_store_t* store, int rank, int world_size,
                                              const onehop_intra_node_options_t* options,
                                              onehop_intra_node_comm_t** comm) {
  return produce(comm, "comm", [&] {
    const onehop_intra_node_options_t given =
        options == nullptr ? intra_node_defaults() : read_options(options, "options", intra_node_defaults());
    return new onehop_intra_node_comm{IntraNodeComm(deref(store, "store").store, Rank{rank}, world_size,
                                                    given.buffer_bytes, to_options(given))};
  });
}

void onehop_intra_node_comm_destroy(onehop_intra_node_comm_t* comm) {
  delete comm;
}

onehop_status_t onehop_intra_node_comm_rendezvous(onehop_intra_node_comm_t* comm, int* formed) {
  return guard([&] {
    // The other ranks wait for this one, even if it cannot return the answer.
    const bool yes = in(comm).rendezvous();
    deref(formed, "formed") = yes ? 1 : 0;
  });
}

const char* onehop_intra_node_comm_reason(const onehop_intra_node_comm_t* comm) {
  if (comm == nullptr) return "";
  return guard_or("", [&] { return comm->comm.reason().c_str(); });
}

onehop_algorithm_t onehop_intra_node_comm_select(const onehop_intra_node_comm_t* comm, const void* data,
                                                 size_t count, onehop_dtype_t dtype) {
  if (comm == nullptr) return ONEHOP_ALGORITHM_NONE;
  return guard_or<onehop_algorithm_t>(ONEHOP_ALGORITHM_NONE, [&] {
    return static_cast<int>(comm->comm.select_all_reduce_algorithm(data, count, as_dtype(dtype)));
  });
}

onehop_status_t onehop_intra_node_comm_all_reduce(onehop_intra_node_comm_t* comm, void* data, size_t count,
                                                  onehop_dtype_t dtype, onehop_algorithm_t algorithm,
                                                  void* stream) {
  return guard(
      [&] { in(comm).all_reduce(data, count, as_dtype(dtype), as_algorithm(algorithm), Stream{stream}); });
}

onehop_status_t onehop_intra_node_comm_synchronize(onehop_intra_node_comm_t* comm, void* stream) {
  return guard([&] { in(comm).synchronize(Stream{stream}); });
}

onehop_status_t onehop_intra_node_comm_usage(const onehop_intra_node_comm_t* comm,
                                             onehop_algorithm_t algorithm, uint64_t* count) {
  return produce(count, "count", [&] {
    require(algorithm >= 0 && algorithm < kAlgorithmCount,
            "algorithm {} is not one of ONEHOP_ALGORITHM_* (0 to {})", algorithm, kAlgorithmCount - 1);
    return in(comm).usage()[static_cast<std::size_t>(algorithm)];
  });
}

uint64_t onehop_intra_node_comm_total_usage(void) {
  return IntraNodeComm::total_usage();
}

}  // extern "C"
