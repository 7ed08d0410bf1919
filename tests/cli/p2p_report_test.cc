// SPDX-License-Identifier: Apache-2.0
// What the table and the JSON of 'onehop p2p-check' say.
#include "p2p_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace onehop::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PairReport good(int from, int to) {
  PairReport report;
  report.from = DeviceId{from};
  report.to = DeviceId{to};
  report.attributes = {.access = true, .performance_rank = 0, .native_atomics = true, .array_access = true};
  for (int test = 0; test < kPeerTestCount; ++test) {
    report.tests.push_back({static_cast<PeerTest>(test), PeerOutcome::passed, ""});
  }
  report.store_gbps = 367.94;
  report.load_gbps = 370.06;
  report.copy_gbps = 394;
  report.latency_ns = 645.4;
  return report;
}

PairReport bad(int from, int to, PeerTest test, PeerOutcome outcome) {
  PairReport report = good(from, to);
  report.tests[static_cast<std::size_t>(test)] = {test, outcome, "3 of 64 words are wrong"};
  report.copy_gbps.reset();
  return report;
}

TEST(P2pText, IsALinePerPairAndTheVerdict) {
  EXPECT_EQ(p2p_text({good(0, 1), good(1, 0)}),
            "from    to     store     load     copy   latency  check\n"
            "             GB/s     GB/s     GB/s        us\n"
            "   0     1     367.9    370.1    394.0      0.65  ok\n"
            "   1     0     367.9    370.1    394.0      0.65  ok\n"
            "\n"
            "2 of 2 directions verified\n");
}

TEST(P2pText, NamesWhatFailedAndWhy) {
  const std::string text = p2p_text({good(0, 1), bad(1, 0, PeerTest::copy, PeerOutcome::failed)});
  EXPECT_THAT(text, HasSubstr("   1     0     367.9    370.1        -      0.65  copy failed\n"));
  EXPECT_THAT(text, HasSubstr("\nGPU 1 -> GPU 0: copy failed: 3 of 64 words are wrong\n"));
  EXPECT_THAT(text, HasSubstr("\n1 of 2 directions verified\n"));
  EXPECT_THAT(text, Not(HasSubstr("GPU 0 -> GPU 1")));
}

TEST(P2pText, TellsNoAccessFromNotTestedFromSeveralFailures) {
  PairReport without = good(0, 1);
  without.attributes.access = false;
  EXPECT_THAT(p2p_text({without}), HasSubstr("  no access\n"));
  EXPECT_THAT(p2p_text({bad(0, 1, PeerTest::flag, PeerOutcome::not_run)}), HasSubstr("  not tested\n"));
  PairReport twice = bad(0, 1, PeerTest::store, PeerOutcome::failed);
  twice.tests[1].outcome = PeerOutcome::hung;
  EXPECT_THAT(p2p_text({twice}), HasSubstr("  store failed, load hung\n"));
}

TEST(P2pText, SaysWhenAtomicsWereNotTried) {
  PairReport report = good(0, 1);
  report.attributes.native_atomics = false;
  EXPECT_THAT(p2p_text({report}), HasSubstr("1 of 1 directions verified; atomics are not native"));
}

TEST(P2pJson, HasEverythingTheTableHas) {
  const auto document =
      nlohmann::json::parse(p2p_json({good(0, 1), bad(1, 0, PeerTest::load, PeerOutcome::hung)}, 256u << 20));
  EXPECT_EQ(document.at("format"), "onehop p2p-check 1");
  EXPECT_EQ(document.at("ok"), false);
  EXPECT_EQ(document.at("bytes"), 256u << 20);
  const auto& first = document.at("pairs").at(0);
  EXPECT_EQ(first.at("from"), 0);
  EXPECT_EQ(first.at("to"), 1);
  EXPECT_EQ(first.at("ok"), true);
  EXPECT_EQ(first.at("native_atomics"), true);
  EXPECT_DOUBLE_EQ(first.at("store_gbps"), 367.94);
  EXPECT_DOUBLE_EQ(first.at("latency_ns"), 645.4);
  const auto& second = document.at("pairs").at(1);
  EXPECT_EQ(second.at("ok"), false);
  EXPECT_TRUE(second.at("copy_gbps").is_null());
  EXPECT_EQ(second.at("tests").at(1).at("test"), "load");
  EXPECT_EQ(second.at("tests").at(1).at("outcome"), "hung");
  EXPECT_EQ(second.at("tests").at(1).at("detail"), "3 of 64 words are wrong");
}

TEST(P2pJson, SurvivesTextThatIsNoUtf8) {
  PairReport report = bad(0, 1, PeerTest::load, PeerOutcome::failed);
  report.tests[1].detail = std::string(1, '\xff');
  EXPECT_TRUE(nlohmann::json::accept(p2p_json({report}, 16)));
}

TEST(P2pVerdict, IsOkOnlyWhenAllAreAndKnowsHangs) {
  EXPECT_TRUE(all_ok({good(0, 1), good(1, 0)}));
  EXPECT_FALSE(all_ok({good(0, 1), bad(1, 0, PeerTest::copy, PeerOutcome::failed)}));
  EXPECT_FALSE(any_hung({bad(1, 0, PeerTest::copy, PeerOutcome::failed)}));
  EXPECT_TRUE(any_hung({good(0, 1), bad(1, 0, PeerTest::copy, PeerOutcome::hung)}));
}

}  // namespace
}  // namespace onehop::cli
