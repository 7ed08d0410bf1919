// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"
#include "store/file_record.h"

using namespace onehop;

std::vector<fuzz::Seed> fuzz::seeds() {
  std::string key;
  for (int byte = 0; byte < 256; ++byte) key += static_cast<char>(byte);
  const std::string value(key.rbegin(), key.rend());
  const std::string small = store::encode_record({.key = "job/0", .value = "value"});
  return {{"empty", store::encode_record({})},
          {"small", small},
          {"binary", store::encode_record({.key = key, .value = value})},
          {"wrong_checksum", changed(small, small.size() - 1, small.back() ^ 1), false}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  fuzz::parse([&] { fuzz::expect_same(bytes, store::encode_record(store::parse_record(bytes))); });
  // The checksum keeps the fuzzer from the fields, so it also reaches them through a record with a valid
  // checksum.
  const std::string_view key = bytes.substr(0, size / 2);
  const std::string_view value = bytes.substr(size / 2);
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) return 0;
  const std::string record = store::encode_record({.key = key, .value = value});
  const store::Record parsed = store::parse_record(record);
  fuzz::expect_same(key, parsed.key);
  fuzz::expect_same(value, parsed.value);
  if (store::file_name_of(key).find('/') != std::string::npos) fuzz::finding("a file name with a slash");
  return 0;
}
