// SPDX-License-Identifier: Apache-2.0
// What onehop tune --show and --explain print.
#include "tuning_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onehop::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum onehop::Buffers;

constexpr GroupKind kGpus{.backend = Backend::cuda, .ranks = 4, .links = Links::nvlink};

TuningRow row(TypeClass types, onehop::Buffers buffers, std::uint64_t up_to, const char* algorithm) {
  TuningRow out{.backend = Backend::cuda, .ranks = 4, .types = types, .buffers = buffers, .up_to = up_to};
  if (algorithm != nullptr) out.choice = AlgorithmChoice{algorithm};
  return out;
}
TuningRow of(onehop::Collective collective, TuningRow from) {
  from.collective = collective;
  return from;
}

/// The library's table in these tests.
Tuning own() {
  Tuning tuning{
      .device = {},
      .rows = {row(TypeClass::floats, any, 32 << 10, "ll_one_shot"),
               row(TypeClass::floats, any, 32 << 20, "lamport_two_shot"),
               row(TypeClass::any, symmetric, kNoLimit, "copy_engine_two_shot"),
               row(TypeClass::any, any, kNoLimit, "streaming_two_shot"),
               of(onehop::Collective::gather, row(TypeClass::any, any, kNoLimit, "point_to_point"))}};
  tuning.rows[2].derived = true;
  return tuning;
}

GroupTable table(std::vector<TuningRow> file_rows, const std::vector<onehop::Collective>& collectives = {}) {
  const std::string file = file_rows.empty() ? "" : "t.json";
  return group_table(kGpus, file, {.device = "H", .rows = std::move(file_rows)}, own(), collectives);
}

TuningQuery call(DType type, std::uint64_t bytes, onehop::Buffers buffers = any) {
  return {.collective = onehop::Collective::all_reduce,
          .backend = Backend::cuda,
          .ranks = 4,
          .type = type,
          .buffers = buffers,
          .bytes = bytes};
}

TEST(TuningReport, WithoutAFileTheTableIsTheLibrarys) {
  EXPECT_EQ(to_text(table({})),
            "# 4 GPUs with NVLink: the library's own table\n"
            "collective  types  buffers    up to  from      algorithm\n"
            "all-reduce  float  any          32K  measured  ll_one_shot\n"
            "all-reduce  float  any          32M  measured  lamport_two_shot\n"
            "all-reduce  any    symmetric    max  derived   copy_engine_two_shot\n"
            "all-reduce  any    any          max  measured  streaming_two_shot\n"
            "gather      any    any          max  measured  point_to_point\n");
  EXPECT_EQ(to_tuning(table({})).rows, own().rows);
}

TEST(TuningReport, RowsOfTheFileComeFirstAndHideThoseOfTheLibrary) {
  TuningRow other = row(TypeClass::any, any, kNoLimit, "ll_one_shot");
  other.ranks = 2;
  const GroupTable mixed = table({row(TypeClass::floats, any, 1 << 20, "ll_one_shot"), other});
  EXPECT_EQ(to_text(mixed),
            "# 4 GPUs with NVLink: 't.json', then the library's own table\n"
            "# the file has 1 more row for other groups\n"
            "collective  types  buffers    up to  from      algorithm\n"
            "all-reduce  float  any           1M  file      ll_one_shot\n"
            "all-reduce  float  any          32M  measured  lamport_two_shot\n"
            "all-reduce  any    symmetric    max  derived   copy_engine_two_shot\n"
            "all-reduce  any    any          max  measured  streaming_two_shot\n"
            "gather      any    any          max  measured  point_to_point\n");
  const Tuning written = to_tuning(mixed);
  EXPECT_EQ(written.device, "H");
  EXPECT_EQ(Tuning::from_json(written.to_json()), written);
}

TEST(TuningReport, ARowThatLeavesCallsToTheLibraryShowsTheLibrarysRows) {
  const TuningRow left = row(TypeClass::any, symmetric, kNoLimit, nullptr);
  const TuningRow rest = row(TypeClass::any, any, kNoLimit, "ll_one_shot");
  const GroupTable mixed = table({left, rest}, {onehop::Collective::all_reduce});
  EXPECT_THAT(mixed.file_rows, ElementsAre(left, rest));
  EXPECT_EQ(mixed.own_rows.size(), 4u);
  EXPECT_THAT(to_tuning(mixed).rows, ElementsAre(left, rest)) << "a table has no rows that are not reached";
  EXPECT_THAT(table({rest}, {onehop::Collective::all_reduce}).own_rows, IsEmpty());
}

TEST(TuningReport, OnlyTheNamedCollectivesAreShown) {
  EXPECT_EQ(table({}, {onehop::Collective::gather}).own_rows.size(), 1u);
}

TEST(TuningReport, ACallIsExplainedByItsRowAndThoseBefore) {
  EXPECT_EQ(
      explain(table({}), call(DType::i32, 64 << 10)),
      "all-reduce of 64K of i32 on 4 GPUs with NVLink: streaming_two_shot\n"
      "The call uses this row:\n"
      "  library, measured: types any, buffers any, up to max: streaming_two_shot\n"
      "These rows come first but do not match:\n"
      "  library, measured: types float, buffers any, up to 32K: ll_one_shot; i32 is not a "
      "floating-point type; 64K is too long\n"
      "  library, measured: types float, buffers any, up to 32M: lamport_two_shot; i32 is not a "
      "floating-point type\n"
      "  library, derived: types any, buffers symmetric, up to max: copy_engine_two_shot; the output is "
      "not declared symmetric\n");
  EXPECT_EQ(explain(table({}), call(DType::bf16, 1024)),
            "all-reduce of 1K of bf16 on 4 GPUs with NVLink: ll_one_shot\n"
            "The call uses this row:\n"
            "  library, measured: types float, buffers any, up to 32K: ll_one_shot\n");
}

TEST(TuningReport, ACallThatTheFileLeavesToTheLibraryIsExplainedByBothRows) {
  EXPECT_EQ(explain(table({row(TypeClass::any, symmetric, kNoLimit, nullptr),
                           row(TypeClass::any, any, kNoLimit, "ll_one_shot")}),
                    call(DType::i32, 1024, symmetric)),
            "all-reduce of 1K of i32 on 4 GPUs with NVLink: copy_engine_two_shot\n"
            "The call uses this row:\n"
            "  file: types any, buffers symmetric, up to max: default\n"
            "  library, derived: types any, buffers symmetric, up to max: copy_engine_two_shot\n"
            "These rows come first but do not match:\n"
            "  library, measured: types float, buffers any, up to 32K: ll_one_shot; i32 is not a "
            "floating-point type\n"
            "  library, measured: types float, buffers any, up to 32M: lamport_two_shot; i32 is not a "
            "floating-point type\n");
}

TEST(TuningReport, ACollectiveWithoutRowsHasNoChoice) {
  TuningQuery query = call(DType::bf16, 1024);
  query.collective = onehop::Collective::barrier;
  EXPECT_EQ(explain(table({}), query),
            "barrier of 1K of bf16 on 4 GPUs with NVLink: there is no choice of algorithms\n");
}

TEST(TuningReport, ALimitOneByteBelowARoundSizeIsShownByThatSize) {
  const auto limit = [](std::uint64_t up_to) {
    const GroupTable one =
        table({row(TypeClass::any, any, up_to, "ll_one_shot")}, {onehop::Collective::all_reduce});
    std::string text = explain(one, call(DType::i32, 0));
    text = text.substr(text.find("up to ") + 6);
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(limit((64 << 20) - 1), "<64M");
  EXPECT_EQ(limit(64 << 20), "64M");
  EXPECT_EQ(limit(999), "999");
  EXPECT_EQ(limit(1023), "<1K");
  EXPECT_EQ(limit(kNoLimit), "max");
}

TEST(TuningReport, GroupsAreNamed) {
  EXPECT_EQ(describe(GroupKind{.backend = Backend::host, .ranks = 3}), "3 host ranks");
  EXPECT_EQ(describe(GroupKind{.backend = Backend::cuda, .ranks = 2, .links = Links::pcie}),
            "2 GPUs with PCIe");
}

}  // namespace
}  // namespace onehop::cli
