// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"
#include "store/file_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onehop;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
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
