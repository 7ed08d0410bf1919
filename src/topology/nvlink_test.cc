// SPDX-License-Identifier: Apache-2.0
#include "topology/nvlink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/driver_testing.h"

namespace onehop {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<std::string> kBusIds{"00000000:1a:00.0", "00000000:1b:00.0", "00000000:1c:00.0"};

/// A fake machine with three devices without links.
class Nvlink : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* bus_id : {"00000000:1A:00.0", "00000000:1B:00.0", "00000000:1C:00.0"}) {
      FakeGpu gpu;
      gpu.bus_id = bus_id;
      machine_.gpus.push_back(gpu);
    }
  }
  void link(std::size_t from, std::size_t to) {
    machine_.gpus[from].links.push_back({kNvmlEnabled, kNvmlLinkEndGpu, machine_.gpus[to].bus_id});
  }
  void link_to_switch(std::size_t from, int count) {
    for (int i = 0; i < count; ++i)
      machine_.gpus[from].links.push_back({kNvmlEnabled, kNvmlLinkEndSwitch, "00000000:05:00.0"});
  }
  [[nodiscard]] NvlinkMatrix count() const { return count_nvlinks(machine_.nvml, kBusIds); }

  FakeMachine machine_;
};

TEST_F(Nvlink, DirectLinksCountForTheDeviceAtTheirEnd) {
  link(0, 1);
  link(0, 1);
  link(0, 2);
  link(1, 0);
  const NvlinkMatrix matrix = count();
  EXPECT_THAT(matrix.links, ElementsAre(0, 2, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(matrix.notes, IsEmpty());
}

TEST_F(Nvlink, LinksIntoASwitchCountTowardsEveryOtherDeviceOnIt) {
  link_to_switch(0, 18);
  link_to_switch(1, 12);
  EXPECT_THAT(count().links, ElementsAre(0, 12, 0, 12, 0, 0, 0, 0, 0));
  link_to_switch(2, 18);
  link(0, 1);
  EXPECT_THAT(count().links, ElementsAre(0, 13, 18, 12, 0, 12, 18, 12, 0));
}

TEST_F(Nvlink, InactiveLinksDoNotCountButThoseBehindThemDo) {
  link(0, 1);
  link(0, 1);
  machine_.gpus[0].links[0].state = kNvmlDisabled;
  EXPECT_THAT(count().links, ElementsAre(0, 1, 0, 0, 0, 0, 0, 0, 0));
}

TEST_F(Nvlink, LinksToDevicesThatThisProcessDoesNotSeeDoNotCount) {
  machine_.gpus[0].links = {{kNvmlEnabled, kNvmlLinkEndGpu, "00000000:77:00.0"},
                            {kNvmlEnabled, kNvmlLinkEndIbmNpu, "00000004:00:00.0"},
                            {kNvmlEnabled, kNvmlLinkEndUnknown, ""}};
  EXPECT_THAT(count().links, Each(0));
}

TEST_F(Nvlink, AnEndOfUnknownKindIsKnownByItsBusId) {
  link(0, 2);
  machine_.gpus[0].links[0].end = kNvmlLinkEndUnknown;
  EXPECT_THAT(count().links, ElementsAre(0, 0, 1, 0, 0, 0, 0, 0, 0));
  machine_.failing["DeviceGetNvLinkRemoteDeviceType"] = kNvmlNotSupported;
  EXPECT_THAT(count().links, ElementsAre(0, 0, 1, 0, 0, 0, 0, 0, 0));
  machine_.nvml.DeviceGetNvLinkRemoteDeviceType = nullptr;
  EXPECT_THAT(count().links, ElementsAre(0, 0, 1, 0, 0, 0, 0, 0, 0));
  machine_.failing["DeviceGetNvLinkRemotePciInfo_v2"] = kNvmlUnknown;
  EXPECT_THAT(count().links, ElementsAre(0, -1, -1, 0, 0, 0, 0, 0, 0)) << "it may lead to either";
}

TEST_F(Nvlink, TheFirstUnsupportedIndexEndsTheWalkQuietly) {
  EXPECT_THAT(count().links, Each(0));
  EXPECT_THAT(count().notes, IsEmpty());
  link(0, 1);
  machine_.failing["DeviceGetNvLinkState"] = kNvmlInvalidArgument;
  EXPECT_THAT(count().links, Each(0));
  EXPECT_THAT(count().notes, IsEmpty());
}

TEST_F(Nvlink, AnythingElseThatEndsItIsNoted) {
  link(0, 1);
  machine_.failing["DeviceGetNvLinkState"] = kNvmlUnknown;
  const NvlinkMatrix matrix = count();
  EXPECT_THAT(matrix.links, ElementsAre(0, -1, -1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(matrix.notes, ElementsAre(HasSubstr("00000000:1a:00.0 from number 0 on are not known")));
}

TEST_F(Nvlink, LinksOfADeviceUnknownToNvmlAreNotKnownAndANoteSaysSo) {
  link(0, 1);
  link(1, 0);
  machine_.gpus[0].nvml_knows = false;
  const NvlinkMatrix matrix = count();
  EXPECT_THAT(matrix.links, ElementsAre(0, -1, -1, 1, 0, 0, 0, 0, 0));
  link_to_switch(1, 18);
  EXPECT_THAT(count().links, ElementsAre(0, -1, -1, 1, 0, 0, 0, 0, 0));
  link_to_switch(2, 18);
  EXPECT_THAT(count().links, ElementsAre(0, -1, -1, 1, 0, 18, -1, 18, 0));
  EXPECT_THAT(matrix.notes, ElementsAre(HasSubstr("does not find device 00000000:1a:00.0")));
}

TEST_F(Nvlink, AnNvmlThatNeverEndsTheWalkDoesNotKeepUs) {
  machine_.nvml.DeviceGetNvLinkState = [](NvmlDevice, unsigned, NvmlEnableState* state) {
    *state = kNvmlDisabled;
    return kNvmlSuccess;
  };
  EXPECT_THAT(count().links, SizeIs(9));
}

}  // namespace
}  // namespace onehop
