// What a build without a CUDA toolkit has in the place of everything that asks the driver.
#include "topology/probe.h"

namespace onehop {

DeviceProbe probe_devices() {
  DeviceProbe probe;
  probe.notes.emplace_back("this onehop was built without CUDA: no GPU is looked for");
  return probe;
}

}  // namespace onehop
