// What a build without a CUDA toolkit has in the place of everything that asks the driver.
#include "topology/device_files.h"
#include "topology/probe.h"

namespace onehop {

DeviceProbe probe_devices() {
  DeviceProbe probe;
  probe.notes.emplace_back("this onehop was built without CUDA: no GPU is looked for");
  return probe;
}

GpuDiagnosis diagnose_gpus() {
  GpuDiagnosis diagnosis;
  const DeviceFiles files = check_device_files("/dev");
  diagnosis.findings.push_back(files.finding);
  Finding build{kGpuSection, "CUDA", Health::not_applicable, "this onehop was built without it", {}, false};
  if (files.gpus > 0) {
    build.health = Health::fails;
    build.remedy = "install a CUDA toolkit and build onehop again";
  }
  diagnosis.findings.push_back(build);
  diagnosis.summary = "the GPU backend does not work here: this onehop was built without CUDA";
  return diagnosis;
}

}  // namespace onehop
