// SPDX-License-Identifier: Apache-2.0
// StoreExchange, and the job that a launcher started this process in.
#include <algorithm>
#include <optional>

#include "onehop/job.h"
#include "onehop/store.h"

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "c_api/payloads.h"

using namespace onehop;
using namespace onehop::c_api;

struct onehop_store_exchange {
  StoreExchange exchange;
};

extern "C" {

onehop_status_t onehop_store_exchange_create(onehop_store_t* store, const char* prefix, int rank,
                                             int world_size, onehop_store_exchange_t** exchange) {
  return produce(exchange, "exchange", [&] {
    return new onehop_store_exchange{
        StoreExchange(deref(store, "store").store, text(prefix, "prefix"), Rank{rank}, world_size)};
  });
}

void onehop_store_exchange_destroy(onehop_store_exchange_t* exchange) {
  delete exchange;
}

onehop_status_t onehop_store_exchange_all_gather(onehop_store_exchange_t* exchange, const void* payload,
                                                 size_t bytes, int64_t timeout_ms,
                                                 onehop_payloads_t** payloads) {
  return guard([&] {
    StoreExchange& among = deref(exchange, "exchange").exchange;
    const std::string_view own = c_api::bytes(payload, bytes, "payload");
    make_payloads(deref(payloads, "payloads"),
                  [&] { return among.all_gather(own, timeout(timeout_ms, kDefaultTimeout)); });
  });
}

onehop_status_t onehop_store_exchange_broadcast(onehop_store_exchange_t* exchange, const void* payload,
                                                size_t bytes, int root, int64_t timeout_ms, char** value,
                                                size_t* value_bytes) {
  return guard([&] {
    StoreExchange& among = deref(exchange, "exchange").exchange;
    const std::string_view own = c_api::bytes(payload, bytes, "payload");
    char*& out = deref(value, "value");
    std::size_t& size = deref(value_bytes, "value_bytes");
    hand_out(among.broadcast(own, Rank{root}, timeout(timeout_ms, kDefaultTimeout)), out, size);
  });
}

onehop_status_t onehop_store_exchange_barrier(onehop_store_exchange_t* exchange, int64_t timeout_ms) {
  return guard([&] { deref(exchange, "exchange").exchange.barrier(timeout(timeout_ms, kDefaultTimeout)); });
}

void onehop_job_info_init(onehop_job_info_t* job, size_t size) {
  init_options(job, size, onehop_job_info_t{});
}

onehop_status_t onehop_job_from_env(onehop_job_info_t* job) {
  return guard([&] {
    onehop_job_info_t& out = deref(job, "job");
    const std::optional<JobInfo> found = job_from_env();
    if (!found) {
      fail(
          ErrorCode::not_found,
          "no launcher's variables are set: start this program with onehop launch, torchrun, mpirun or srun");
    }
    onehop_job_info_t info{};
    info.rank = found->rank.value;
    info.world_size = found->size;
    info.local_rank = found->local_rank.value;
    found->launcher.copy(info.launcher, sizeof info.launcher - 1);
    write_result(out, "job", info);
  });
}

onehop_status_t onehop_store_from_env(int64_t timeout_ms, onehop_store_t** store) {
  return produce(store, "store",
                 [&] { return new onehop_store{store_from_env(timeout(timeout_ms, kDefaultTimeout))}; });
}

}  // extern "C"
