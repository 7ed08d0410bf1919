// SPDX-License-Identifier: Apache-2.0
#include "memory/share_methods.h"

#include "base/check.h"
#include "driver/share_support.h"

namespace onehop {

ShareMethods share_methods(DeviceId device, ShareBy wanted) {
  ShareMethods usable;
  const auto look = [&](ShareBy share_by, ShareSupport (*support)(DeviceId)) {
    if (wanted != ShareBy::automatic && wanted != share_by) return;
    const ShareSupport found = support(device);
    if (found.usable) {
      usable.add(share_by);
      if (share_by == ShareBy::fabric) usable.fabric = found.reason;
    } else if (wanted == share_by) {
      fail(ErrorCode::unsupported, "device {} cannot share memory by '{}': {}; try ONEHOP_SHARE=auto",
           device.value, to_string(share_by), found.reason);
    }
  };
  look(ShareBy::fabric, &fabric_support);
  look(ShareBy::posix_fd, &descriptor_support);
  look(ShareBy::ipc, &ipc_support);
  return usable;
}

}  // namespace onehop
