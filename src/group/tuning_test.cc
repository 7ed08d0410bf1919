// SPDX-License-Identifier: Apache-2.0
#include "onehop/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "onehop/error.h"

#include "base/json_field.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kHostRow =
    R"({"collective": "all-reduce", "backend": "host", "ranks": 2, "types": "any", "up_to": 4096,
        "algorithm": "one_shot", "chunk": 65536})";
constexpr const char* kCudaRow =
    R"({"collective": "all-reduce", "backend": "cuda", "ranks": 4, "types": "float", "buffers": "any",
        "up_to": 16384, "algorithm": "ll_one_shot", "blocks": 64, "threads": 128, "derived": true})";

std::string table(const std::string& rows) {
  return R"({"onehop_tuning": 2, "rows": [)" + rows + "]}";
}
/// The row with the value of one of its members replaced.
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
    EXPECT_THAT(error.message(), AllOf(HasSubstr("tuning file 'x': "),
                                       EndsWith("; 'onehop tune --out FILE' writes a new table")));
    EXPECT_THAT(error.message(), Not(HasSubstr("\n")));
    return error.message();
  }
  ADD_FAILURE() << "was taken: " << json;
  return {};
}

Tuning example() {
  const TuningRow gpus{.backend = Backend::cuda, .ranks = 4, .types = TypeClass::floats};
  Tuning tuning{.device = "NVIDIA H200", .rows = std::vector<TuningRow>(7, gpus)};
  tuning.rows[0].buffers = Buffers::symmetric;
  tuning.rows[0].up_to = 4096;
  tuning.rows[0].derived = true;
  tuning.rows[1].up_to = 16384;
  tuning.rows[1].choice = AlgorithmChoice{.algorithm = "ll_one_shot", .blocks = 64, .threads = 128};
  tuning.rows[2].up_to = 1 << 20;
  tuning.rows[3].choice = AlgorithmChoice{.algorithm = "lamport_two_shot", .threads = 512};
  tuning.rows[4] = {
      .ranks = 2, .up_to = 0, .choice = AlgorithmChoice{.algorithm = "two_shot", .chunk = 128 << 10}};
  tuning.rows[5] = {.ranks = 2};
  tuning.rows[6] = {.collective = Collective::reduce, .ranks = 2, .choice = AlgorithmChoice{"one_shot"}};
  return tuning;
}

TEST(Tuning, IsWhatItsJsonSays) {
  const Tuning tuning = example();
  EXPECT_EQ(Tuning::from_json(tuning.to_json()), tuning);
  EXPECT_EQ(Tuning::from_json(Tuning{}.to_json()), Tuning{});
}

TEST(Tuning, JsonLeavesOutWhatIsTheDefault) {
  const std::string json = Tuning{.device = {}, .rows = {{.ranks = 2}}}.to_json();
  EXPECT_EQ(json, R"({"onehop_tuning": 2,
 "rows": [
  {"collective":"all-reduce","backend":"host","ranks":2,"types":"any","up_to":"max","algorithm":"default"}]}
)");
}

TEST(Tuning, TheFirstRowThatReachesSoFarIsTaken) {
  const Tuning tuning = example();
  const auto find = [&](Backend backend, int ranks, DType type, std::uint64_t bytes,
                        Buffers buffers = Buffers::any, Collective collective = Collective::all_reduce) {
    return tuning.find({.collective = collective,
                        .backend = backend,
                        .ranks = ranks,
                        .type = type,
                        .buffers = buffers,
                        .bytes = bytes});
  };
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 0, Buffers::symmetric), &tuning.rows[0]);
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 4097, Buffers::symmetric), &tuning.rows[1]) << "any buffers";
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 0), &tuning.rows[1]);
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 16384), &tuning.rows[1]);
  EXPECT_EQ(find(Backend::cuda, 4, DType::bf16, 16385), &tuning.rows[2]);
  EXPECT_EQ(find(Backend::cuda, 4, DType::f64, (1 << 20) + 8), &tuning.rows[3]);
  EXPECT_EQ(find(Backend::cuda, 4, DType::f64, kNoLimit), &tuning.rows[3]);
  EXPECT_EQ(find(Backend::cuda, 4, DType::i32, 1024), nullptr) << "no float";
  EXPECT_EQ(find(Backend::cuda, 2, DType::bf16, 1024), nullptr) << "other ranks";
  EXPECT_EQ(find(Backend::host, 4, DType::bf16, 1024), nullptr) << "another backend";
  EXPECT_EQ(find(Backend::host, 2, DType::bf16, 0), &tuning.rows[4]) << "any type, a float too";
  EXPECT_EQ(find(Backend::host, 2, DType::i64, 1), &tuning.rows[5]);
  EXPECT_EQ(find(Backend::host, 2, DType::i64, 1, Buffers::any, Collective::reduce), &tuning.rows[6]);
  EXPECT_EQ(find(Backend::host, 2, DType::i64, 1, Buffers::any, Collective::gather), nullptr);
}

TEST(Tuning, AnErrorNamesRowMemberAndValue) {
  struct Case {
    const char* row;
    const char* member;
    Json value;
    const char* complaint;
  };
  const Case cases[] = {
      {kCudaRow, "collective", "all_reduce", "rows[1].collective: must be one of all-reduce "},
      {kHostRow, "collective", "all-gather", "rows[1].collective: must be one of all-reduce reduce, got"},
      {kCudaRow, "backend", "gpu", "rows[1].backend: must be one of host cuda, got \"gpu\""},
      {kCudaRow, "ranks", 9, "rows[1].ranks: must be an integer from 2 to 8, got 9"},
      {kCudaRow, "ranks", 1, "rows[1].ranks: must be an integer from 2 to 8, got 1"},
      {kCudaRow, "types", "floats", "rows[1].types: must be one of float any, got \"floats\""},
      {kCudaRow, "buffers", "both", "rows[1].buffers: must be one of any symmetric, got \"both\""},
      {kCudaRow, "algorithm", "packets", "rows[1].algorithm: must be one of default "},
      {kCudaRow, "algorithm", "packets",
       " for all-reduce of 4 ranks with types \"float\" and buffers \"any\", got \"packets\""},
      {kCudaRow, "algorithm", "default", "rows[1]: has no member \"blocks\""},
      {kCudaRow, "algorithm", 7, ", got 7"},
      {kCudaRow, "blocks", 0, "rows[1].blocks: must be an integer from 1 to 65535, got 0"},
      {kCudaRow, "blocks", "all", "rows[1].blocks: must be an integer from 1 to 65535, got \"all\""},
      {kCudaRow, "threads", 100, "rows[1].threads: must be a multiple of 32, got 100"},
      {kCudaRow, "threads", 1056, "rows[1].threads: must be an integer from 32 to 1024, got 1056"},
      {kCudaRow, "up_to", -1, "rows[1].up_to: must be an integer from 0"},
      {kCudaRow, "up_to", 1.5, "rows[1].up_to: must be an integer from 0"},
      {kCudaRow, "up_to", "64K", "rows[1].up_to: must be a number of bytes or \"max\", got \"64K\""},
      {kCudaRow, "chunk", 4096, "rows[1]: has no member \"chunk\""},
      {kCudaRow, "thread", 128, "rows[1]: has no member \"thread\""},
      {kCudaRow, "derived", "yes", "rows[1].derived: must be true or false, got \"yes\""},
      {kHostRow, "chunk", 4095, "rows[1].chunk: must be an integer from 4096 to 1073741824, got 4095"},
      {kHostRow, "chunk", 4097, "rows[1].chunk: must be a multiple of 64, got 4097"},
      {kHostRow, "blocks", 4, "rows[1]: has no member \"blocks\""},
      {kHostRow, "threads", 32, "rows[1]: has no member \"threads\""},
      {kHostRow, "algorithm", "none", "rows[1].algorithm: must be one of default one_shot two_shot for "},
      {kHostRow, "algorithm", "default", "rows[1]: has no member \"chunk\""},
      {kHostRow, "ranks", 65, "rows[1].ranks: must be an integer from 2 to 64, got 65"},
  };
  const std::string fine = row_with(kHostRow, "ranks", 3).dump();
  for (const Case& each : cases) {
    const Json row = row_with(each.row, each.member, each.value);
    EXPECT_THAT(refusal(table(fine + "," + row.dump())), HasSubstr(each.complaint)) << row;
  }
}

TEST(Tuning, TheMembersOfAChoiceBuffersAndDerivedAreOptional) {
  for (const char* row : {kHostRow, kCudaRow}) {
    const Json whole = Json::parse(row);
    for (const auto& member : whole.items()) {
      const bool optional = std::ranges::count(std::array{"chunk", "blocks", "threads", "buffers", "derived"},
                                               member.key()) != 0;
      Json without = whole;
      without.erase(member.key());
      if (optional) {
        EXPECT_THAT(Tuning::from_json(table(without.dump())).rows, SizeIs(1)) << without;
      } else {
        EXPECT_THAT(refusal(table(without.dump())),
                    HasSubstr("rows[0]: the field '" + member.key() + "' is missing"));
      }
    }
  }
  EXPECT_TRUE(Tuning::from_json(table(kCudaRow)).rows[0].derived);
  EXPECT_FALSE(Tuning::from_json(table(kHostRow)).rows[0].derived);
}

TEST(Tuning, AnAlgorithmMustCarryTypesAndBuffersOfItsRowBetweenItsRanks) {
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    for (const Collective collective : tunable_collectives(backend)) {
      const auto all = algorithm_names(backend, collective, TypeClass::floats, Buffers::symmetric);
      for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
        for (const Buffers buffers : {Buffers::any, Buffers::symmetric}) {
          for (const int ranks : {2, 3}) {
            const auto fitting = algorithm_names(backend, collective, types, buffers, ranks);
            for (const std::string_view name : all) {
              const Tuning tuning{.device = {},
                                  .rows = {{.collective = collective,
                                            .backend = backend,
                                            .ranks = ranks,
                                            .types = types,
                                            .buffers = buffers,
                                            .choice = AlgorithmChoice{std::string(name)}}}};
              if (std::ranges::count(fitting, name) != 0) {
                EXPECT_EQ(Tuning::from_json(tuning.to_json()), tuning) << name;
                continue;
              }
              std::string allowed = "must be one of default";
              for (const std::string_view each : fitting) allowed.append(" ").append(each);
              EXPECT_THAT(refusal(tuning.to_json()), HasSubstr(allowed + " for ")) << name;
            }
          }
        }
      }
    }
  }
}

TEST(Tuning, ARowThatNoCallReachesIsRefused) {
  const std::string row = Json::parse(kHostRow).dump();
  EXPECT_THAT(refusal(table(row + "," + row)),
              HasSubstr("rows[1].up_to: no call reaches this row: rows[0] takes the same calls up to 4096"));
  const std::string last = row_with(kHostRow, "up_to", "max").dump();
  EXPECT_THAT(refusal(table(last + "," + last)), HasSubstr("up to max"));
  EXPECT_THAT(Tuning::from_json(table(row + "," + last)).rows, SizeIs(2));
  EXPECT_THAT(Tuning::from_json(table(row + "," + row_with(kHostRow, "ranks", 3).dump())).rows, SizeIs(2));
  EXPECT_THAT(Tuning::from_json(table(row + "," + row_with(kHostRow, "collective", "reduce").dump())).rows,
              SizeIs(2));
}

TEST(Tuning, ARowForMoreCallsHidesALaterRowForSomeOfThem) {
  const TypeClass classes[] = {TypeClass::floats, TypeClass::any};
  const Buffers kinds[] = {Buffers::any, Buffers::symmetric};
  const TuningRow plain{.backend = Backend::cuda, .ranks = 2, .up_to = 4096};
  for (const TypeClass types : classes) {
    for (const Buffers buffers : kinds) {
      TuningRow first = plain;
      first.types = types;
      first.buffers = buffers;
      // Between them, a row that takes no call of the last one.
      TuningRow between = plain;
      between.ranks = 3;
      for (const TypeClass later_types : classes) {
        for (const Buffers later_buffers : kinds) {
          TuningRow later = plain;
          later.types = later_types;
          later.buffers = later_buffers;
          const std::string text = Tuning{.device = {}, .rows = {first, between, later}}.to_json();
          const bool hidden = (types == TypeClass::any || types == later_types) &&
                              (buffers == Buffers::any || buffers == later_buffers);
          if (hidden) {
            EXPECT_THAT(refusal(text), HasSubstr("rows[2].up_to: no call reaches this row: rows[0]"));
          } else {
            EXPECT_THAT(Tuning::from_json(text).rows, SizeIs(3)) << text;
          }
          later.up_to = 4097;
          EXPECT_THAT(Tuning::from_json(Tuning{.device = {}, .rows = {first, between, later}}.to_json()).rows,
                      SizeIs(3));
        }
      }
    }
  }
}

TEST(Tuning, WhatIsNoTableIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("'onehop_tuning' is missing"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 3, "rows": []})"),
              HasSubstr("version 3 is not known to this build, which reads version 2"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 2})"), HasSubstr("'rows' is missing"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 2, "row": []})"), HasSubstr("has no member \"row\""));
  EXPECT_THAT(refusal(std::string(kMaxTuningBytes + 1, ' ')), HasSubstr("more than the limit"));
  EXPECT_THAT(refusal(R"({"onehop_tuning": 2, "rows": [[[[[[]]]]]]})"), HasSubstr("nested deeper"));
  std::string many;
  for (int i = 0; i < 1025; ++i) many += std::string(i == 0 ? "" : ",") + "{}";
  EXPECT_THAT(refusal(table(many)), HasSubstr("more than the limit of 1024"));
}

TEST(Tuning, TablesOfVersion1AreNoLongerRead) {
  EXPECT_EQ(refusal(R"({"onehop_tuning": 1, "rows": [{"protocol": "packets"}]})"),
            "tuning file 'x': onehop_tuning: version 1 is no longer read; 'onehop tune --out FILE' writes a "
            "new table");
}

TEST(Tuning, EveryCandidateMakesATable) {
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    for (const Collective collective : tunable_collectives(backend)) {
      for (const TypeClass types : {TypeClass::floats, TypeClass::any}) {
        for (const Buffers buffers : {Buffers::any, Buffers::symmetric}) {
          for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
            const auto choices = candidate_choices(backend, collective, ranks, types, buffers);
            ASSERT_GT(choices.size(), 1u) << to_string(collective);
            EXPECT_EQ(choices.front(), std::nullopt);
            TuningRow row{.collective = collective,
                          .backend = backend,
                          .ranks = ranks,
                          .types = types,
                          .buffers = buffers};
            for (std::size_t i = 1; i < choices.size(); ++i) {
              ASSERT_TRUE(choices[i]);
              row.choice = choices[i];
              const Tuning tuning{.device = "", .rows = {row}};
              EXPECT_EQ(Tuning::from_json(tuning.to_json()), tuning) << to_string(*choices[i]);
              EXPECT_EQ(std::ranges::count(choices, choices[i]), 1) << to_string(*choices[i]);
            }
          }
        }
      }
    }
  }
}

TEST(Tuning, TheLibrarysOwnTableMatchesEveryCallThatHasAChoice) {
  for (const Links links : {Links::nvlink, Links::pcie}) {
    for (const Backend backend : {Backend::host, Backend::cuda}) {
      for (int ranks = 2; ranks <= kMaxDevices; ++ranks) {
        const Tuning own = default_tuning(backend, ranks, links);
        EXPECT_EQ(Tuning::from_json(own.to_json()), own);
        for (const TuningRow& row : own.rows) EXPECT_TRUE(row.choice) << own.to_json();
        for (const Collective collective : tunable_collectives(backend)) {
          for (const DType type : {DType::bf16, DType::i32}) {
            EXPECT_NE(own.find({.collective = collective,
                                .backend = backend,
                                .ranks = ranks,
                                .type = type,
                                .bytes = kNoLimit}),
                      nullptr)
                << to_string(collective);
          }
        }
      }
    }
  }
}

TEST(Tuning, ChoicesAreDescribedForPeople) {
  EXPECT_EQ(to_string(AlgorithmChoice{"one_shot"}), "one_shot");
  EXPECT_EQ(to_string(AlgorithmChoice{.algorithm = "two_shot", .chunk = 256 << 10}),
            "two_shot in chunks of 256K");
  EXPECT_EQ(to_string(AlgorithmChoice{.algorithm = "ll_one_shot", .blocks = 32, .threads = 128}),
            "ll_one_shot, 32 blocks of 128 threads");
  EXPECT_EQ(to_string(AlgorithmChoice{.algorithm = "streaming_two_shot", .blocks = 64}),
            "streaming_two_shot, 64 blocks");
  EXPECT_EQ(to_string(AlgorithmChoice{.algorithm = "ll_one_shot", .threads = 128}),
            "ll_one_shot, blocks of 128 threads");
}

TEST(Tuning, EnumeratorsHaveTheNamesOfTables) {
  EXPECT_EQ(to_string(Backend::host), "host");
  EXPECT_EQ(to_string(Backend::cuda), "cuda");
  EXPECT_EQ(to_string(TypeClass::floats), "float");
  EXPECT_EQ(to_string(TypeClass::any), "any");
  EXPECT_EQ(to_string(Buffers::any), "any");
  EXPECT_EQ(to_string(Buffers::symmetric), "symmetric");
  EXPECT_EQ(to_string(Links::nvlink), "nvlink");
  EXPECT_EQ(to_string(Links::pcie), "pcie");
}

}  // namespace
}  // namespace onehop
