// SPDX-License-Identifier: Apache-2.0
#include "c_api/payloads.h"

extern "C" {

size_t onehop_payloads_count(const onehop_payloads_t* payloads) {
  return payloads == nullptr ? 0 : payloads->all.size();
}

const void* onehop_payloads_data(const onehop_payloads_t* payloads, size_t index) {
  return index < onehop_payloads_count(payloads) ? payloads->all[index].c_str() : nullptr;
}

size_t onehop_payloads_bytes(const onehop_payloads_t* payloads, size_t index) {
  return index < onehop_payloads_count(payloads) ? payloads->all[index].size() : 0;
}

void onehop_payloads_destroy(onehop_payloads_t* payloads) {
  delete payloads;
}

}  // extern "C"
