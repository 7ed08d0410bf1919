// SPDX-License-Identifier: Apache-2.0
// NVML, NVIDIA's management library, loaded at run time. It provides information that CUDA does not: NVLinks,
// the state of the NVLink fabric, MIG. It may be missing although CUDA works (a container without the
// 'utility' capability). That information is then unknown, which is never an error.
#pragma once

#include <string>

namespace onehop {

// The part of NVML's stable ABI that onehop uses, as documented in the NVML API Reference Guide ("Device
// Structs", "NvLink Enums", "Device Enums"). Not all CUDA toolkits ship its header.

enum NvmlResult : int {
  kNvmlSuccess = 0,
  kNvmlUninitialized = 1,
  kNvmlInvalidArgument = 2,
  kNvmlNotSupported = 3,
  kNvmlNoPermission = 4,
  kNvmlNotFound = 6,
  kNvmlDriverNotLoaded = 9,
  kNvmlUnknown = 999,
};

using NvmlDevice = struct NvmlDeviceHandle*;

enum NvmlEnableState : int { kNvmlDisabled = 0, kNvmlEnabled = 1 };

/// The type of device at the other end of an NVLink.
enum NvmlLinkEnd : int {
  kNvmlLinkEndGpu = 0,
  kNvmlLinkEndIbmNpu = 1,
  kNvmlLinkEndSwitch = 2,
  kNvmlLinkEndUnknown = 0xff,
};

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];  ///< "00000000:19:00.0", upper case
};
static_assert(sizeof(NvmlPciInfo) == 68);

inline constexpr unsigned char kNvmlFabricNotSupported = 0;
inline constexpr unsigned char kNvmlFabricNotStarted = 1;
inline constexpr unsigned char kNvmlFabricInProgress = 2;
inline constexpr unsigned char kNvmlFabricCompleted = 3;

struct NvmlFabricInfo {
  unsigned char cluster_uuid[16];
  NvmlResult status;  ///< status of the registration; meaningful only if it is completed
  unsigned clique_id;
  unsigned char state;
};
static_assert(sizeof(NvmlFabricInfo) == 28);

struct NvmlFabricInfoV2 {
  unsigned version;  ///< kNvmlFabricInfoV2, set by the caller
  unsigned char cluster_uuid[16];
  NvmlResult status;
  unsigned clique_id;
  unsigned char state;
  unsigned health_mask;
};
static_assert(sizeof(NvmlFabricInfoV2) == 36);
inline constexpr unsigned kNvmlFabricInfoV2 = sizeof(NvmlFabricInfoV2) | 2u << 24;

/// NVML's functions, under their names without `nvml`. Plain data, so that tests can fill a table with fakes.
struct Nvml {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a parameter list
#define ONEHOP_NVML_FUNCTION(name, necessity, result, parameters) result(*name) parameters = nullptr;
#include "driver/nvml_functions.inc"
#undef ONEHOP_NVML_FUNCTION
};

/// Returns NVML, initialized for the life of the process, or nullptr and the reason in one line in `why` (if
/// given). Searches once per process. Thread-safe.
[[nodiscard]] const Nvml* find_nvml(std::string* why = nullptr) noexcept;

/// Returns, for example, "Not Supported (NVML error 3)".
[[nodiscard]] std::string nvml_error_text(const Nvml& nvml, NvmlResult result);

/// Replaces NVML by `fake` for the lifetime of this object. For tests; not while other threads use NVML.
class ScopedNvml {
 public:
  explicit ScopedNvml(const Nvml* fake, std::string why = {});
  ~ScopedNvml();
  ScopedNvml(const ScopedNvml&) = delete;
  ScopedNvml& operator=(const ScopedNvml&) = delete;
};

}  // namespace onehop
