// SPDX-License-Identifier: Apache-2.0
#include "base/range.h"

#if ONEHOP_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#endif

namespace onehop {

#if ONEHOP_HAVE_NVTX

void start_ranges() {
  static std::once_flag once;
  std::call_once(once, [] {
    // nullptr without a tool. The first NVTX call loads a tool; later calls never do.
    detail::g_range_domain.store(nvtxDomainCreateA("onehop"), std::memory_order_release);
  });
}

void detail::push_range(void* domain, const char* name) {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  (void)nvtxDomainRangePushEx(static_cast<nvtxDomainHandle_t>(domain), &event);
}

void detail::pop_range(void* domain) {
  (void)nvtxDomainRangePop(static_cast<nvtxDomainHandle_t>(domain));
}

#else

void start_ranges() {}
void detail::push_range(void* /*domain*/, const char* /*name*/) {}
void detail::pop_range(void* /*domain*/) {}

#endif

}  // namespace onehop
