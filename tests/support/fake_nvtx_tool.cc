// SPDX-License-Identifier: Apache-2.0
// Loaded by NVTX in place of a profiler (NVTX_INJECTION64_PATH). Prints on stderr which domains are created
// and which ranges begin and end.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

nvtxDomainHandle_t create_domain(const char* name) {
  static int any_address = 0;
  std::fprintf(stderr, "nvtx: domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(&any_address);
}

int push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* event) {
  std::fprintf(stderr, "nvtx: begin %s\n", event->message.ascii);
  return 0;
}

int pop(nvtxDomainHandle_t /*domain*/) {
  std::fprintf(stderr, "nvtx: end\n");
  return 0;
}

template <class Function>
NvtxFunctionPointer as_pointer(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned entries = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &entries) == 0)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = as_pointer(create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = as_pointer(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = as_pointer(pop);
  return 1;
}
