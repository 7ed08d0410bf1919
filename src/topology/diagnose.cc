// SPDX-License-Identifier: Apache-2.0
#include "topology/diagnose.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/env.h"
#include "driver/capability.h"
#include "driver/device.h"
#include "driver/fabric.h"
#include "driver/share_trial.h"
#include "topology/probe.h"

namespace onehop {
namespace {

constexpr const char* kMpsVariable = "CUDA_MPS_PIPE_DIRECTORY";

std::string counted_gpus(std::size_t count) {
  return fmt::format("{} GPU{}", count, count == 1 ? "" : "s");
}

/// Returns, for example, "GPU 0: detail; GPU 3: detail". Devices with the same detail are merged: "GPU 0,1:
/// detail".
class PerGpu {
 public:
  void add(DeviceId device, const std::string& detail) {
    std::string& devices = devices_[detail];
    devices += fmt::format("{}{}", devices.empty() ? "" : ",", device.value);
  }
  [[nodiscard]] bool empty() const { return devices_.empty(); }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const auto& [detail, devices] : devices_)
      text += fmt::format("{}GPU {}: {}", text.empty() ? "" : "; ", devices, detail);
    return text;
  }

 private:
  std::map<std::string, std::string> devices_;
};

/// Runs the checks in order. A GPU that fails a mandatory check is excluded from later checks that use its
/// resources.
class Checks {
 public:
  Checks(const CudaDriver& driver, GpuDiagnosis& diagnosis)
      : driver_(driver),
        diagnosis_(diagnosis),
        topology_(assemble({}, probe_devices())),
        usable_(topology_.devices().size(), true) {}

  void run() {
    check_devices();
    check_mps();
    check_mig();
    check_compute_mode();
    check_capability();
    check_attributes();
    check_sharing();
    check_cuda_ipc();
    check_peers();
    check_links();
    check_fabric();
    report_multicast();
    conclude();
  }

 private:
  void works(const char* name, std::string detail) { add(name, Health::works, std::move(detail), {}); }
  void fails(const char* name, std::string detail, std::string remedy) {
    add(name, Health::fails, std::move(detail), std::move(remedy));
  }
  void information(const char* name, std::string detail) {
    add(name, Health::not_applicable, std::move(detail), {});
  }
  void add(const char* name, Health health, std::string detail, std::string remedy) {
    diagnosis_.findings.push_back({kGpuSection, name, health, std::move(detail), std::move(remedy), false});
  }

  [[nodiscard]] std::size_t count() const { return usable_.size(); }
  [[nodiscard]] std::size_t usable_count() const {
    return static_cast<std::size_t>(std::count(usable_.begin(), usable_.end(), true));
  }
  template <class Visit>
  void each_gpu(Visit&& visit) {
    for (std::size_t i = 0; i < count(); ++i) visit(DeviceId{static_cast<int>(i)});
  }
  /// Calls `check(device)` for each usable GPU. If it returns a text, the GPU is not usable for that reason.
  template <class Check>
  PerGpu sort_out(Check&& check) {
    PerGpu bad;
    each_gpu([&](DeviceId device) {
      if (!usable_[at(device)]) return;
      const std::string why = check(device);
      if (why.empty()) return;
      bad.add(device, why);
      usable_[at(device)] = false;
    });
    return bad;
  }
  [[nodiscard]] static std::size_t at(DeviceId device) { return static_cast<std::size_t>(device.value); }

  void check_devices() {
    std::map<std::string, std::size_t> names;
    for (const DeviceInfo& device : topology_.devices())
      ++names[device.name.empty() ? "no answer" : device.name];
    std::string text;
    for (const auto& [name, number] : names)
      text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", number, name);
    if (count() == 0) {
      fails("GPUs", "the driver shows none to this process",
            fmt::format("check CUDA_VISIBLE_DEVICES ('{}') and the container's devices",
                        env::get("CUDA_VISIBLE_DEVICES").value_or("")));
    } else {
      works("GPUs", text);
    }
  }

  void check_mps() {
    bool enabled = false;
    each_gpu([&](DeviceId device) {
      enabled = enabled || cuda_attribute_or(device, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0) != 0;
    });
    const auto directory = env::get(kMpsVariable);
    if (!enabled && !directory) return;
    information("MPS", fmt::format("{}{}; GPUs may be shared with other clients of MPS",
                                   enabled ? "this process is its client" : "set up, but not used",
                                   directory ? fmt::format(" ({}={})", kMpsVariable, *directory) : ""));
  }

  void check_mig() {
    const Nvml* const nvml = find_nvml();
    const PerGpu slices = sort_out([&](DeviceId device) -> std::string {
      const DeviceInfo& info = topology_.device(device);
      NvmlDevice handle = nullptr;
      unsigned mode = 0;
      unsigned pending = 0;
      const bool mig =
          info.name.find(" MIG ") != std::string::npos ||
          (nvml != nullptr && nvml->DeviceGetMigMode != nullptr &&
           nvml->DeviceGetHandleByPciBusId_v2(info.pci_bus_id.c_str(), &handle) == kNvmlSuccess &&
           nvml->DeviceGetMigMode(handle, &mode, &pending) == kNvmlSuccess && mode != 0);
      return mig ? "a MIG slice, which cannot reach other GPUs" : "";
    });
    if (!slices.empty())
      fails("MIG", slices.text(),
            "use whole GPUs: turn MIG off ('nvidia-smi -mig 0'), or choose GPUs without it");
  }

  void check_compute_mode() {
    PerGpu exclusive;
    const PerGpu prohibited = sort_out([&](DeviceId device) -> std::string {
      const int mode = cuda_attribute_or(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT);
      if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS) exclusive.add(device, "for one process at a time");
      return mode == CU_COMPUTEMODE_PROHIBITED ? "no process may use it" : "";
    });
    if (!prohibited.empty()) fails("compute mode", prohibited.text(), "'nvidia-smi -c DEFAULT'");
    if (!exclusive.empty()) information("compute mode", exclusive.text());
  }

  void check_capability() {
    const PerGpu old = sort_out([&](DeviceId device) -> std::string {
      const int capability = topology_.device(device).compute_capability;
      if (capability >= kOldestCapability) return {};
      return fmt::format("{}.{}", capability / 10, capability % 10);
    });
    if (!old.empty()) {
      fails("compute capability", old.text(),
            "onehop needs 8.0 (A100) or newer: leave older GPUs out with CUDA_VISIBLE_DEVICES");
    } else if (usable_count() > 0) {
      works("compute capability", "8.0 or newer");
    }
  }

  void check_attributes() {
    const PerGpu lacking = sort_out([&](DeviceId device) -> std::string {
      if (cuda_attribute_or(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0) == 0)
        return "no virtual memory management";
      if (cuda_attribute_or(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0) == 0)
        return "no memory handles that are file descriptors";
      return {};
    });
    if (!lacking.empty())
      fails("virtual memory", lacking.text(), "use a bare-metal or pass-through GPU, not a vGPU without it");
    else if (usable_count() > 0)
      works("virtual memory", "supported, with file descriptors as handles");
  }

  void check_sharing() {
    const PerGpu failed = sort_out([&](DeviceId device) -> std::string {
      try {
        const CurrentDevice current(device);
        const auto failure =
            try_sharing(driver_, device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, ShareTrial::map);
        return failure ? failure->text() : std::string{};
      } catch (const Error& error) {
        return error.message();
      }
    });
    if (!failed.empty())
      fails(
          "memory by descriptors", failed.text(),
          "see who uses the GPU ('nvidia-smi'); a container may forbid it: try without its seccomp profile");
    else if (usable_count() > 0)
      works("memory by descriptors", "created, exported, imported, mapped and released");
  }

  void check_cuda_ipc() {
    PerGpu failed;
    each_gpu([&](DeviceId device) {
      if (!usable_[at(device)]) return;
      if (const std::string why = try_cuda_ipc(device); !why.empty()) failed.add(device, why);
    });
    if (!failed.empty())
      fails("CUDA IPC", failed.text(), "share memory that onehop allocates, which needs no CUDA IPC");
    else if (usable_count() > 0)
      works("CUDA IPC", "handles of ordinary memory can be made");
  }

  std::string try_cuda_ipc(DeviceId device) {
    if (cuda_attribute_or(device, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0) == 0)
      return "the driver does not support it";
    try {
      const CurrentDevice current(device);
      CUdeviceptr memory = 0;
      constexpr std::size_t kBytes = std::size_t{2} << 20;
      if (const CUresult result = driver_.MemAlloc(&memory, kBytes); result != CUDA_SUCCESS)
        return "cuMemAlloc: " + cuda_error_text(result);
      CUipcMemHandle handle{};
      const CUresult made = driver_.IpcGetMemHandle(&handle, memory);
      const CUresult freed = driver_.MemFree(memory);
      if (made != CUDA_SUCCESS) return "cuIpcGetMemHandle: " + cuda_error_text(made);
      if (freed != CUDA_SUCCESS) return "cuMemFree: " + cuda_error_text(freed);
      return {};
    } catch (const Error& error) {
      return error.message();
    }
  }

  void check_peers() {
    if (usable_count() < 2) return;
    constexpr std::size_t kNamed = 4;
    std::size_t directions = 0;
    std::string missing;
    each_gpu([&](DeviceId from) {
      each_gpu([&](DeviceId to) {
        if (from == to || !usable_[at(from)] || !usable_[at(to)]) return;
        ++directions;
        if (topology_.pair(from, to).peer_access) return;
        if (++missing_peers_ <= kNamed)
          missing += fmt::format("{}GPU {} to GPU {}", missing.empty() ? "" : ", ", from.value, to.value);
      });
    });
    if (missing_peers_ == 0) {
      works("peer access", fmt::format("between all GPUs, in all {} directions", directions));
      return;
    }
    if (missing_peers_ > kNamed) missing += fmt::format(" and {} more", missing_peers_ - kNamed);
    fails("peer access",
          fmt::format("missing in {} of {} directions: {}", missing_peers_, directions, missing),
          "'nvidia-smi topo -p2p rw' has NVIDIA's reason; different kinds of GPUs, PCIe ACS or IOMMU, and "
          "virtual "
          "machines prevent it");
  }

  void check_links() {
    if (usable_count() < 2) return;
    const bool known = find_nvml() != nullptr;
    if (!known) {
      information("NVLink", "not known without NVML");
    } else if (topology_.connectivity() == Connectivity::fully_connected) {
      works("NVLink", topology_.explain_connectivity());
    } else {
      information("NVLink", topology_.explain_connectivity() + "; PCIe is used where there is no link");
    }
  }

  void check_fabric() {
    if (count() == 0) return;
    PerGpu verdicts;
    bool all = true;
    each_gpu([&](DeviceId device) {
      const DeviceInfo& info = topology_.device(device);
      all = all && info.fabric_handles;
      const std::string why = info.fabric_note.empty() ? "not known" : info.fabric_note;
      verdicts.add(device, info.fabric_handles ? "they work" : why);
    });
    if (all)
      works("fabric handles", "they work; not needed inside one machine");
    else
      information("fabric handles", verdicts.text() + " (not needed inside one machine)");
  }

  void report_multicast() {
    if (count() == 0) return;
    std::size_t offered = 0;
    for (const DeviceInfo& device : topology_.devices()) offered += device.multicast_supported ? 1 : 0;
    information("multicast", fmt::format("the driver offers it on {} of {}; onehop never uses it", offered,
                                         counted_gpus(count())));
  }

  void conclude() {
    const std::size_t good = usable_count();
    diagnosis_.usable = good > 0;
    if (good == 0) {
      const auto cause = std::find_if(diagnosis_.findings.begin(), diagnosis_.findings.end(),
                                      [](const Finding& finding) { return finding.health == Health::fails; });
      diagnosis_.summary = "the GPU backend does not work here";
      if (cause != diagnosis_.findings.end())
        diagnosis_.summary += fmt::format(": {}: {}", cause->name, cause->detail);
      return;
    }
    diagnosis_.summary = fmt::format(
        "the GPU backend works here: {}{}",
        good == count() ? counted_gpus(good) : fmt::format("{} of {}", good, counted_gpus(count())),
        missing_peers_ > 0 ? ", but not all of them reach each other" : "");
  }

  const CudaDriver& driver_;
  GpuDiagnosis& diagnosis_;
  Topology topology_;
  std::vector<bool> usable_;
  std::size_t missing_peers_ = 0;
};

std::string version_text(const CudaDriver& driver, const Nvml* nvml) {
  int cuda = 0;
  (void)driver.DriverGetVersion(&cuda);
  std::string text = fmt::format("CUDA {}.{}", cuda / 1000, cuda % 1000 / 10);
  char version[96] = {};
  if (nvml != nullptr && nvml->SystemGetDriverVersion(version, sizeof version - 1) == kNvmlSuccess)
    text += fmt::format(", driver {}", version);
  return text;
}

Finding check_nvml(const Nvml* nvml, const std::string& why, bool gpus) {
  if (nvml != nullptr) return {kGpuSection, "NVML", Health::works, "tells about links and fabric", {}, false};
  if (!gpus) return {kGpuSection, "NVML", Health::not_applicable, why, {}, false};
  return {kGpuSection,
          "NVML",
          Health::fails,
          why + "; links are not known without it",
          "install the driver's libraries; a container needs the 'utility' driver capability "
          "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
          false};
}

}  // namespace

GpuDiagnosis diagnose_gpus(const DeviceFiles& files) {
  GpuDiagnosis diagnosis;
  diagnosis.findings.push_back(files.finding);
  std::string cuda_why;
  std::string nvml_why;
  const CudaDriver* const driver = find_cuda_driver(&cuda_why);
  const Nvml* const nvml = find_nvml(&nvml_why);
  if (driver == nullptr) {
    const bool present = files.gpus > 0;
    diagnosis.findings.push_back(
        {kGpuSection, "CUDA driver", present ? Health::fails : Health::not_applicable, cuda_why,
         present ? "install the driver's libraries; in a container use the NVIDIA container toolkit" : "",
         false});
    diagnosis.findings.push_back(check_nvml(nvml, nvml_why, present));
    diagnosis.summary = "the GPU backend does not work here: " + cuda_why;
    return diagnosis;
  }
  diagnosis.findings.push_back(
      {kGpuSection, "CUDA driver", Health::works, version_text(*driver, nvml), {}, false});
  diagnosis.findings.push_back(check_nvml(nvml, nvml_why, true));
  Checks(*driver, diagnosis).run();
  return diagnosis;
}

GpuDiagnosis diagnose_gpus() {
  return diagnose_gpus(check_device_files("/dev"));
}

}  // namespace onehop
