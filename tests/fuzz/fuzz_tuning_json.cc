// SPDX-License-Identifier: Apache-2.0
// Any input is a tuning table or Error{protocol} in one line. A table equals the one parsed from its own
// JSON, and every row is found by the largest of its calls.
#include <cstdint>
#include <string_view>

#include "onehop/error.h"
#include "onehop/tuning.h"

#include "fuzz.h"

std::vector<onehop::fuzz::Seed> onehop::fuzz::seeds() {
  return {};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onehop;
  Tuning tuning;
  try {
    tuning = Tuning::from_json({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::protocol) fuzz::finding(error.message());
    if (error.message().find('\n') != std::string::npos) fuzz::finding("more than one line");
    return 0;
  }
  if (Tuning::from_json(tuning.to_json()) != tuning) fuzz::finding("a table is not what its JSON says");
  for (const TuningRow& row : tuning.rows) {
    const TuningRow* const found =
        tuning.find({.collective = row.collective,
                     .backend = row.backend,
                     .ranks = row.ranks,
                     .type = row.types == TypeClass::floats ? DType::bf16 : DType::u64,
                     .buffers = row.buffers,
                     .bytes = row.up_to});
    if (found != &row) fuzz::finding("a row is not found by the calls it is for");
    if (row.choice && to_string(*row.choice).empty()) fuzz::finding("an algorithm without a name");
  }
  fuzz::accepted = true;
  return 0;
}
