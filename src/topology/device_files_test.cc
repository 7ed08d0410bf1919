// SPDX-License-Identifier: Apache-2.0
#include "topology/device_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace onehop {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

/// A directory that stands in for /dev.
class DeviceFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "onehop-dev-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }
  void make(const std::string& name) const { std::ofstream(directory_ / name) << ""; }
  [[nodiscard]] DeviceFiles check() const { return check_device_files(directory_.string()); }

  fs::path directory_;
};

TEST_F(DeviceFilesTest, NoGpuIsNoFailure) {
  make("nvidiactl");
  make("nvidia-uvm");
  make("nvidia-caps");
  const DeviceFiles files = check();
  EXPECT_EQ(files.gpus, 0);
  EXPECT_EQ(files.finding.health, Health::not_applicable);
  EXPECT_THAT(files.finding.detail, HasSubstr("no NVIDIA GPU in " + directory_.string()));
}

TEST_F(DeviceFilesTest, ADirectoryThatIsNotThereHoldsNoGpu) {
  EXPECT_EQ(check_device_files("/nonexistent").gpus, 0);
}

TEST_F(DeviceFilesTest, CountsGpusThatCanBeOpened) {
  for (const char* name : {"nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-modeset"}) make(name);
  const DeviceFiles files = check();
  EXPECT_EQ(files.gpus, 2);
  EXPECT_EQ(files.finding.health, Health::works) << files.finding.detail;
  EXPECT_EQ(files.finding.remedy, "");
}

TEST_F(DeviceFilesTest, NamesTheFilesThatCannotBeOpened) {
  make("nvidia0");
  make("nvidiactl");
  fs::create_directory(directory_ / "nvidia1");  // cannot be opened for writing, even by root
  const DeviceFiles files = check();
  EXPECT_EQ(files.gpus, 2);
  EXPECT_EQ(files.finding.health, Health::fails);
  EXPECT_THAT(files.finding.detail, HasSubstr("nvidia1: Is a directory"));
  EXPECT_THAT(files.finding.detail, HasSubstr("nvidia-uvm: No such file"));
  EXPECT_THAT(files.finding.detail, Not(HasSubstr("nvidia0")));
  EXPECT_THAT(files.finding.remedy, HasSubstr("nvidia-modprobe"));
}

}  // namespace
}  // namespace onehop
