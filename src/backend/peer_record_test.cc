// SPDX-License-Identifier: Apache-2.0
#include "backend/peer_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "os/private_dir.h"

namespace onehop::peer_check {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

const RecordKey kKey{.boot_id = "b00t", .driver_version = 13000, .onehop_version = "0.1.0"};
const Outcomes kOutcomes{{{"GPU-a", "GPU-b"}, true}, {{"GPU-b", "GPU-a"}, false}};

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

class PeerRecord : public ::testing::Test {
 protected:
  os::PrivateDir directory_ = os::PrivateDir::create("record-test");
  std::string path_ = directory_.path() + "/cache/onehop/peers-b00t";
};

TEST_F(PeerRecord, KeepsWhatWasWrittenPrivately) {
  EXPECT_THAT(read_record(path_, kKey), IsEmpty());
  ASSERT_TRUE(write_record(path_, kKey, kOutcomes));
  EXPECT_EQ(read_record(path_, kKey), kOutcomes);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(fs::path(path_).parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path_).parent_path()), {}), 1) << "nothing else";
}

TEST_F(PeerRecord, NewOutcomesJoinTheOldOnes) {
  ASSERT_TRUE(write_record(path_, kKey, kOutcomes));
  ASSERT_TRUE(write_record(path_, kKey, {{{"GPU-b", "GPU-a"}, true}, {{"GPU-c", "GPU-a"}, true}}));
  EXPECT_EQ(read_record(path_, kKey),
            (Outcomes{{{"GPU-a", "GPU-b"}, true}, {{"GPU-b", "GPU-a"}, true}, {{"GPU-c", "GPU-a"}, true}}));
}

TEST_F(PeerRecord, HoldsForOneBootDriverAndVersion) {
  ASSERT_TRUE(write_record(path_, kKey, kOutcomes));
  RecordKey other = kKey;
  other.boot_id = "an0ther";
  EXPECT_THAT(read_record(path_, other), IsEmpty());
  other = kKey;
  other.driver_version = 13010;
  EXPECT_THAT(read_record(path_, other), IsEmpty());
  other = kKey;
  other.onehop_version = "0.2.0";
  EXPECT_THAT(read_record(path_, other), IsEmpty());
  ASSERT_TRUE(write_record(path_, other, {{{"GPU-a", "GPU-b"}, false}}));
  EXPECT_EQ(read_record(path_, other), (Outcomes{{{"GPU-a", "GPU-b"}, false}})) << "the old went";
}

TEST_F(PeerRecord, AnyDamageMakesItAsGoodAsNone) {
  const std::string good = encode(kKey, kOutcomes);
  ASSERT_EQ(decode(good, kKey), kOutcomes);
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_THAT(decode(good.substr(0, i), kKey), IsEmpty()) << "cut at " << i;
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    EXPECT_THAT(decode(flipped, kKey), IsEmpty()) << "changed at " << i;
  }
  EXPECT_THAT(decode(good + good, kKey), IsEmpty());
  EXPECT_THAT(decode("", kKey), IsEmpty());
}

TEST_F(PeerRecord, AFileThatOthersCouldHaveWrittenIsIgnored) {
  ASSERT_TRUE(write_record(path_, kKey, kOutcomes));
  ASSERT_EQ(::chmod(path_.c_str(), 0620), 0);
  EXPECT_THAT(read_record(path_, kKey), IsEmpty());
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  EXPECT_EQ(read_record(path_, kKey), kOutcomes);

  const std::string link = path_ + "-link";
  fs::create_symlink(path_, link);
  EXPECT_THAT(read_record(link, kKey), IsEmpty());
}

TEST_F(PeerRecord, WhatIsNoFileNeitherBlocksNorThrows) {
  fs::create_directories(fs::path(path_).parent_path());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(read_record(path_, kKey), IsEmpty());
  EXPECT_TRUE(write_record(path_, kKey, kOutcomes)) << "replaced";
  EXPECT_EQ(read_record(path_, kKey), kOutcomes);
  EXPECT_THAT(read_record(directory_.path(), kKey), IsEmpty());
  EXPECT_THAT(read_record("", kKey), IsEmpty());
}

TEST_F(PeerRecord, AnOversizedFileIsIgnored) {
  ASSERT_TRUE(write_record(path_, kKey, kOutcomes));
  put(path_, content(path_) + std::string(2u << 20, 'x'));
  EXPECT_THAT(read_record(path_, kKey), IsEmpty());
}

TEST_F(PeerRecord, APlaceThatCannotBeWrittenIsNoError) {
  put(directory_.path() + "/file", "");
  EXPECT_FALSE(write_record(directory_.path() + "/file/onehop/peers-b00t", kKey, kOutcomes));
  EXPECT_FALSE(write_record("", kKey, kOutcomes));
}

TEST_F(PeerRecord, LiesInTheCacheDirectoryOfTheUser) {
  ASSERT_EQ(::setenv("HOME", "/home/ada", 1), 0);
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", "/cache", 1), 0);
  EXPECT_EQ(record_path("b00t"), "/cache/onehop/peers-b00t");
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", "relative", 1), 0);
  EXPECT_EQ(record_path("b00t"), "/home/ada/.cache/onehop/peers-b00t");
  ASSERT_EQ(::unsetenv("XDG_CACHE_HOME"), 0);
  EXPECT_EQ(record_path("b00t"), "/home/ada/.cache/onehop/peers-b00t");
  ASSERT_EQ(::unsetenv("HOME"), 0);
  EXPECT_EQ(record_path("b00t"), "");
}

}  // namespace
}  // namespace onehop::peer_check
