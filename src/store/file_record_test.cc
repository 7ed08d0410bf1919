// SPDX-License-Identifier: Apache-2.0
#include "store/file_record.h"

#include <algorithm>
#include <set>

#include "base/sha256.h"
#include "store/store_test_util.h"

namespace onehop::store {
namespace {

TEST(FileRecord, ParsesWhatWasEncoded) {
  for (const Record& record :
       {Record{"", ""}, Record{"key", "value"}, Record{std::string_view("\0/\n", 3), "\xff"}}) {
    const std::string bytes = encode_record(record);
    EXPECT_EQ(bytes.size(), kRecordOverhead + record.key.size() + record.value.size());
    const Record parsed = parse_record(bytes);
    EXPECT_EQ(parsed.key, record.key);
    EXPECT_EQ(parsed.value, record.value);
  }
}

TEST(FileRecord, HasTheDocumentedBytes) {
  const std::string bytes = encode_record({.key = "k", .value = "vw"});
  EXPECT_EQ(hex(bytes.substr(0, 19)),
            "4f484652"
            "01000000"
            "01000000"
            "6b"
            "02000000"
            "7677");
}

TEST(FileRecord, RefusesEveryTruncationAndExtension) {
  const std::string bytes = encode_record({.key = "key", .value = "value"});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    (void)message_of([&] { (void)parse_record(std::string_view(bytes).substr(0, size)); },
                     ErrorCode::protocol);
  }
  (void)message_of([&] { (void)parse_record(bytes + '\0'); }, ErrorCode::protocol);
}

TEST(FileRecord, NoticesEveryFlippedBit) {
  const std::string good = encode_record({.key = "key", .value = "value"});
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    (void)message_of([&] { (void)parse_record(bad); }, ErrorCode::protocol);
  }
}

TEST(FileRecord, NamesBothVersions) {
  std::string bytes = encode_record({.key = "key", .value = "value"});
  bytes[4] = 9;
  const std::string message = message_of([&] { (void)parse_record(bytes); }, ErrorCode::protocol);
  EXPECT_NE(message.find("version 9"), std::string::npos) << message;
  EXPECT_NE(message.find("version 1"), std::string::npos) << message;
}

TEST(FileName, IsPortableDistinctAndNeverAPath) {
  std::set<std::string> names;
  std::vector<std::string> keys = {"",
                                   ".",
                                   "..",
                                   "/",
                                   "a/b",
                                   "a%2Fb",
                                   "a%2fb",
                                   "A/B",
                                   "lock",
                                   "temporary",
                                   std::string(200, 'a'),
                                   std::string(201, 'a'),
                                   std::string(kMaxKeyBytes, '/')};
  for (int c = 0; c < 256; ++c) keys.emplace_back(1, static_cast<char>(c));
  keys.erase(std::find(keys.begin() + 4, keys.end(), "/"));  // already listed above
  keys.erase(std::find(keys.begin() + 4, keys.end(), "."));
  for (const std::string& key : keys) {
    const std::string name = file_name_of(key);
    EXPECT_LE(name.size(), 143u);
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_%"),
              std::string::npos)
        << name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(file_name_of("job/0"), "key-job%2F0");
}

}  // namespace
}  // namespace onehop::store
