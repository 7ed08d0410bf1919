// SPDX-License-Identifier: Apache-2.0
#include "memory/share_ways.h"

#include "base/check.h"
#include "driver/share_support.h"

namespace onehop {

ShareWays share_ways(DeviceId device, ShareBy wanted) {
  ShareWays ways;
  const auto look = [&](ShareBy way, ShareSupport (*support)(DeviceId)) {
    if (wanted != ShareBy::automatic && wanted != way) return;
    const ShareSupport found = support(device);
    if (found.usable) {
      ways.add(way);
      if (way == ShareBy::fabric) ways.fabric = found.reason;
    } else if (wanted == way) {
      fail(ErrorCode::unsupported, "device {} cannot share memory by '{}': {}; try ONEHOP_SHARE=auto",
           device.value, to_string(way), found.reason);
    }
  };
  look(ShareBy::fabric, &fabric_support);
  look(ShareBy::posix_fd, &descriptor_support);
  look(ShareBy::ipc, &ipc_support);
  return ways;
}

}  // namespace onehop
