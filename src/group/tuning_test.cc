// SPDX-License-Identifier: Apache-2.0
#include "onehop/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_field.h"
#include "group/group_tuning.h"
#include "kernel/device_team.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostRow =
    R"({"collective": "all-reduce", "backend": "host", "ranks": 2, "types": "any", "up_to": 4096,
        "algorithm": "one-shot", "chunk": 65536})";
constexpr const char* kCudaRow =
    R"({"collective": "all-reduce", "backend": "cuda", "ranks": 4, "types": "float", "up_to": 16384,
        "protocol": "packets", "blocks": 64, "threads": 128})";

std::string table(const std::string& rows) {
  return R"({"onehop_tuning": 1, "rows": [)" + rows + "]}";
}
/// The row with what stands behind one of its members replaced.
Json row_with(const char* row, const char* member, const Json& value) {
  Json out = Json::parse(row);
  out[member] = value;
  return out;
}

std::string refusal(const std::string& json) {
  try {
    (void)Tuning::from_json(json, "tuning file 'x'");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::protocol);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("tuning file 'x': "), HasSubstr("onehop tune")));
    EXPECT_THAT(error.message(), Not(HasSubstr("\n")));
    return error.message();
  }
  ADD_FAILURE() << "was taken: " << json;
  return {};
}

Tuning example() {
  return {.device = "NVIDIA H200",
          .rows = {
              {.backend = Backend::cuda,
               .ranks = 4,
               .types = TypeClass::floats,
               .up_to = 16384,
               .way = DeviceWay{DeviceProtocol::packets, 64, 128}},
              {.backend = Backend::cuda, .ranks = 4, .types = TypeClass::floats, .up_to = 1 << 20, .way = {}},
              {.backend = Backend::cuda,
               .ranks = 4,
               .types = TypeClass::floats,
               .way = DeviceWay{DeviceProtocol::mail_two_shot, kAllBlocks, 512}},
              {.ranks = 2, .up_to = 0, .way = HostWay{Algorithm::two_shot, 128 << 10}},
              {.ranks = 2, .way = {}}}};
}

TEST(Tuning, IsWhatItsJsonSays) {
  const Tuning tuning = example();
  EXPECT_EQ(Tuning::from_json(tuning.to_json()), tuning);
  EXPECT_EQ(Tuning::from_json(Tuning{}.to_json()), Tuning{});
}

TEST(Tuning, TheFirstRowThatReachesSoFarIsTaken) {
  const Tuning tuning = example();
  const auto find = [&](Backend backend, int ranks, DType type, std::uint64_t bytes) {
    return tuning.find(Collective::all_reduce, backend, ranks, type, bytes);
  };
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 0), &tuning.rows[0].way);
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 16384), &tuning.rows[0].way);
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 16385), &tuning.rows[1].way);
  EXPECT_EQ(find(Backend::cuda, 4, DType::f64, (1 << 20) + 8), &tuning.rows[2].way);
  EXPECT_EQ(find(Backend::cuda, 4, DType::f64, kNoLimit), &tuning.rows[2].way);
  EXPECT_EQ(find(Backend::cuda, 4, DType::i32, 1024), nullptr) << "no float";
  EXPECT_EQ(find(Backend::cuda, 2, DType::bf16, 1024), nullptr) << "other ranks";
  EXPECT_EQ(find(Backend::host, 4, DType::bf16, 1024), nullptr) << "another backend";
  EXPECT_EQ(find(Backend::host, 2, DType::bf16, 0), &tuning.rows[3].way) << "any type, a float too";
  EXPECT_EQ(find(Backend::host, 2, DType::i64, 1), &tuning.rows[4].way);
}

TEST(Tuning, EveryValueThatCannotBeIsRefusedWithRowFieldAndValue) {
  struct Case {
    const char* row;
    const char* member;
    Json value;
    const char* complaint;
  };
  const Case cases[] = {
      {kCudaRow, "threads", 100, "rows[1].threads: must be a multiple of 32, got 100"},
      {kCudaRow, "threads", 0, "rows[1].threads: must be an integer from 32 to 512, got 0"},
      {kCudaRow, "threads", 544, "rows[1].threads: must be an integer from 32 to 512, got 544"},
      {kCudaRow, "blocks", 0, "rows[1].blocks: must be an integer from 1 to 65535, got 0"},
      {kCudaRow, "blocks", "none", "rows[1].blocks: must be an integer from 1 to 65535, got \"none\""},
      {kCudaRow, "ranks", 1, "rows[1].ranks: must be an integer from 2 to 8, got 1"},
      {kCudaRow, "ranks", 9, "rows[1].ranks: must be an integer from 2 to 8, got 9"},
      {kCudaRow, "protocol", "pigeons", "rows[1].protocol: must be one of packets chunks"},
      {kCudaRow, "backend", "rocm", "rows[1].backend: must be one of host cuda, got \"rocm\""},
      {kCudaRow, "types", "bf16", "rows[1].types: must be one of float any, got \"bf16\""},
      {kCudaRow, "collective", "broadcast", "rows[1].collective: must be one of all-reduce"},
      {kCudaRow, "up_to", -1, "rows[1].up_to: must be an integer from 0"},
      {kCudaRow, "up_to", 1.5, "rows[1].up_to: must be an integer from 0"},
      {kCudaRow, "up_to", "64K", "rows[1].up_to: must be a number of bytes or \"max\", got \"64K\""},
      {kCudaRow, "chunk", 4096, "rows[1]: has no member \"chunk\""},
      {kCudaRow, "thread", 128, "rows[1]: has no member \"thread\""},
      {kCudaRow, "protocol", "chunks", "rows[1]: has no member \"threads\""},
      {kHostRow, "chunk", 4095, "rows[1].chunk: must be an integer from 4096"},
      {kHostRow, "chunk", 4097, "rows[1].chunk: must be a multiple of 64, got 4097"},
      {kHostRow, "algorithm", "none", "rows[1].algorithm: must be one of one-shot two-shot, got \"none\""},
      {kHostRow, "algorithm", "default", "rows[1]: has no member \"chunk\""},
      {kHostRow, "ranks", 65, "rows[1].ranks: must be an integer from 2 to 64, got 65"},
  };
  const std::string fine = row_with(kHostRow, "ranks", 3).dump();
  for (const Case& each : cases) {
    const Json row = row_with(each.row, each.member, each.value);
    EXPECT_THAT(refusal(table(fine + "," + row.dump())), HasSubstr(each.complaint)) << row;
  }
  for (const char* row : {kHostRow, kCudaRow}) {
    const Json whole = Json::parse(row);
    for (const auto& member : whole.items()) {
      Json without = whole;
      without.erase(member.key());
      EXPECT_THAT(refusal(table(without.dump())),
                  HasSubstr("rows[0]: the field '" + member.key() + "' is missing"));
    }
  }
}

TEST(Tuning, AProtocolMustCarryItsClass) {
  for (int i = 0; i < kTunableProtocolCount; ++i) {
    const auto protocol = static_cast<DeviceProtocol>(i);
    Json row = row_with(kCudaRow, "protocol", to_string(protocol));
    row["types"] = "any";
    if (protocol == DeviceProtocol::chunks || protocol == DeviceProtocol::copies) row.erase("threads");
    if (carries(protocol, DType::i32)) {
      EXPECT_EQ(Tuning::from_json(table(row.dump())).rows.size(), 1u);
    } else {
      EXPECT_THAT(refusal(table(row.dump())), HasSubstr("does not carry every type of class \"any\""));
    }
  }
}

TEST(Tuning, ARowThatNoCallComesToIsRefused) {
  const std::string row = Json::parse(kHostRow).dump();
  EXPECT_THAT(refusal(table(row + "," + row)),
              HasSubstr("rows[1].up_to: no call comes here: an earlier row takes the same calls up to 4096"));
  const std::string last = row_with(kHostRow, "up_to", "max").dump();
  EXPECT_THAT(refusal(table(last + "," + last)), HasSubstr("up to max"));
  EXPECT_EQ(Tuning::from_json(table(row + "," + last)).rows.size(), 2u);
  EXPECT_EQ(Tuning::from_json(table(row + "," + row_with(kHostRow, "ranks", 3).dump())).rows.size(), 2u);
}

TEST(Tuning, WhatIsNoTableIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("'onehop_tuning' is missing"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 2, "rows": []})"), HasSubstr("version 2 is not known"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 1})"), HasSubstr("'rows' is missing"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 1, "row": []})"), HasSubstr("has no member \"row\""));
  EXPECT_THAT(refusal(std::string(kMaxTuningBytes + 1, ' ')), HasSubstr("more than the limit"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 1, "rows": [[[[[[]]]]]]})"), HasSubstr("nested deeper"));
  std::string many;
  for (int i = 0; i < 1025; ++i) many += std::string(i == 0 ? "" : ",") + "{}";
  EXPECT_THAT(refusal(table(many)), HasSubstr("more than the limit of 1024"));
}

TEST(Tuning, EveryCandidateMakesATable) {
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
      for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
        const std::vector<Way> ways = candidate_ways(backend, ranks, types);
        ASSERT_GT(ways.size(), 2u);
        EXPECT_EQ(ways.front(), Way(DefaultWay{}));
        for (std::size_t i = 0; i < ways.size(); ++i) {
          const Tuning tuning{.device = "",
                              .rows = {{.backend = backend, .ranks = ranks, .types = types, .way = ways[i]}}};
          EXPECT_EQ(Tuning::from_json(tuning.to_json()), tuning) << to_string(ways[i]);
          for (std::size_t j = 0; j < i; ++j) EXPECT_NE(ways[i], ways[j]) << to_string(ways[i]);
        }
      }
    }
  }
}

TEST(Tuning, CandidatesForFloatsUseEveryProtocolButCopies) {
  std::vector<int> seen(kTunableProtocolCount);
  for (const Way& way : candidate_ways(Backend::cuda, 4, TypeClass::floats)) {
    if (const auto* device = std::get_if<DeviceWay>(&way)) ++seen[static_cast<std::size_t>(device->protocol)];
  }
  EXPECT_EQ(seen.back(), 0) << "copies, the last";
  seen.pop_back();
  EXPECT_THAT(seen, Not(testing::Contains(0)));
}

TEST(Tuning, WaysAreNamedForPeople) {
  EXPECT_EQ(to_string(Way(DefaultWay{})), "default");
  EXPECT_EQ(to_string(Way(HostWay{Algorithm::two_shot, 256 << 10})), "two-shot in chunks of 256K");
  EXPECT_EQ(to_string(Way(DeviceWay{DeviceProtocol::packets, 32, 128})), "packets, 32 blocks of 128 threads");
  EXPECT_EQ(to_string(Way(DeviceWay{.protocol = DeviceProtocol::chunks, .blocks = kAllBlocks})),
            "chunks, all blocks");
}

TEST(Tuning, ShippedTablesAreOfTheirDevice) {
  EXPECT_EQ(Tuning::from_json(shipped_tuning("NVIDIA H200")).device, "NVIDIA H200");
  EXPECT_EQ(shipped_tuning("a GPU nobody has measured"), "");
}

}  // namespace
}  // namespace onehop
