// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "base/env.h"
#include "base/units.h"
#include "base/wire.h"
#include "support/errors.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TEST(Units, DurationsAreParsedExactly) {
  const std::pair<const char*, int> good[] = {{"0", 0},           {"5", 5000},    {"30s", 30000},
                                              {"500ms", 500},     {"1.5s", 1500}, {"2m", 120000},
                                              {"1440m", 86400000}};
  for (const auto& [text, ms] : good) EXPECT_EQ(parse_duration(text), Duration{ms}) << text;
  for (const char* bad : {"", "s", "-1s", "1h", "1 s", "1440.1m", "nan", "inf", "1e99s", "ten"}) {
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
  }
}

TEST(Units, ParsesBytesAndSuffixes) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("64K"), 64u << 10);
  EXPECT_EQ(parse_size("64k"), 64u << 10);
  EXPECT_EQ(parse_size("10MiB"), 10u << 20);
  EXPECT_EQ(parse_size("1GB"), 1u << 30);
  EXPECT_EQ(parse_size("2T"), 2ull << 40);
}

TEST(Units, RefusesWhatIsNoSizeAndNamesIt) {
  for (const char* bad :
       {"", "12Q", "K", "-1", "1.5M", "4 K", "4Ki", "4KiBx", "99999999999999999999", "20000000T"}) {
    const std::string message = message_of([&] { (void)parse_size(bad); }, ErrorCode::invalid_argument);
    EXPECT_NE(message.find(bad), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(Units, FormatsTheShortestExactForm) {
  EXPECT_EQ(format_size(0), "0");
  EXPECT_EQ(format_size(1023), "1023");
  EXPECT_EQ(format_size(65536), "64K");
  EXPECT_EQ(format_size(65537), "65537");
  EXPECT_EQ(format_size(1ull << 30), "1G");
  EXPECT_EQ(format_size(3ull << 50), "3072T");
}

TEST(Units, RoundsSizesForPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(48 << 10), "48 KiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(human_bytes(std::uint64_t{143771} << 20), "140.4 GiB");
  EXPECT_EQ(human_bytes(~std::uint64_t{0}), "16 EiB");
}

TEST(Units, RangesIncludeBothEndsWhenTheFactorHitsThem) {
  EXPECT_EQ(parse_size_list("1K:8K:2"), (std::vector<std::uint64_t>{1024, 2048, 4096, 8192}));
  EXPECT_EQ(parse_size_list("1K:8K"), (std::vector<std::uint64_t>{1024, 2048, 4096, 8192}));
  EXPECT_EQ(parse_size_list("3:20:3"), (std::vector<std::uint64_t>{3, 9}));
  EXPECT_EQ(parse_size_list("4,1K"), (std::vector<std::uint64_t>{4, 1024}));
  EXPECT_EQ(parse_size_list("8000000T:8000001T:2").size(), 1u);
}

TEST(Units, RefusesEmptyBackwardAndStuckRanges) {
  for (const char* bad : {"0:4:2", "8:4:2", "1:8:1", "1:8:0", "1:2:3:4", "1K:", ","}) {
    (void)message_of([&] { (void)parse_size_list(bad); }, ErrorCode::invalid_argument);
  }
}

TEST(Env, ParsesStrictlyAndNamesVariableAndValue) {
  ::setenv("ONEHOP_TEST_VALUE", "12x", 1);
  const std::string message =
      message_of([] { (void)env::get_int("ONEHOP_TEST_VALUE", 0, 99); }, ErrorCode::invalid_argument);
  EXPECT_NE(message.find("ONEHOP_TEST_VALUE='12x'"), std::string::npos) << message;
  ::setenv("ONEHOP_TEST_VALUE", "100", 1);
  (void)message_of([] { (void)env::get_int("ONEHOP_TEST_VALUE", 0, 99); }, ErrorCode::invalid_argument);
  ::setenv("ONEHOP_TEST_VALUE", "99", 1);
  EXPECT_EQ(env::get_int("ONEHOP_TEST_VALUE", 0, 99), 99);
  ::setenv("ONEHOP_TEST_VALUE", "YES", 1);
  EXPECT_TRUE(env::get_flag("ONEHOP_TEST_VALUE"));
  ::setenv("ONEHOP_TEST_VALUE", "maybe", 1);
  (void)message_of([] { (void)env::get_flag("ONEHOP_TEST_VALUE"); }, ErrorCode::invalid_argument);
  ::unsetenv("ONEHOP_TEST_VALUE");
  EXPECT_TRUE(env::get_flag("ONEHOP_TEST_VALUE", true));
  EXPECT_EQ(env::get_int("ONEHOP_TEST_VALUE", 0, 99), std::nullopt);
}

TEST(Env, PrivateDirectoriesGoWhereTheFirstOfTheUsualVariablesSays) {
  constexpr const char* kNames[] = {
      "ONEHOP_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR", "TMP", "TEMP", "TEMPDIR"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : kNames) {
    before.push_back(env::get(name));
    ::setenv(name, fmt::format("/of/{}", name).c_str(), 1);
  }
  for (const char* name : kNames) {
    EXPECT_EQ(env::runtime_base(), fmt::format("/of/{}", name));
    ::setenv(name, "", 1);
    EXPECT_NE(env::runtime_base(), fmt::format("/of/{}", name)) << "an empty variable is none";
    ::unsetenv(name);
  }
  EXPECT_EQ(env::runtime_base(), "/tmp");
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i]) ::setenv(kNames[i], before[i]->c_str(), 1);
  }
}

TEST(Types, NamesRoundTrip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(to_string(type)), type);
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(to_string(op)), op);
  }
  for (int i = 0; i < kShareByCount; ++i) {
    const auto share_by = static_cast<ShareBy>(i);
    EXPECT_EQ(parse_share_by(to_string(share_by)), share_by);
  }
  for (int i = 1; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    EXPECT_EQ(parse_algorithm(to_string(algorithm)), algorithm);
  }
  for (const char* name : {"half", "fp16", "float16"}) EXPECT_EQ(parse_dtype(name), DType::f16) << name;
  for (const char* name : {"float", "fp32", "float32"}) EXPECT_EQ(parse_dtype(name), DType::f32) << name;
  EXPECT_EQ(parse_dtype("fp8_e4m3"), DType::e4m3);
  (void)message_of([] { (void)parse_dtype("f31"); }, ErrorCode::invalid_argument);
  EXPECT_THAT(message_of([] { (void)parse_share_by("smoke"); }, ErrorCode::invalid_argument),
              HasSubstr("'smoke' for sharing memory; known: auto fd fabric ipc"));
  // "none" is the name of what nobody can ask for.
  EXPECT_EQ(to_string(Algorithm::none), "none");
  for (const char* bad : {"none", "no-shot", ""}) {
    EXPECT_THAT(message_of([&] { (void)parse_algorithm(bad); }, ErrorCode::invalid_argument),
                HasSubstr("known: one-shot two-shot"));
  }
  (void)message_of([] { (void)size_of(static_cast<DType>(200)); }, ErrorCode::invalid_argument);
}

TEST(Wire, RoundTripsAndIsLittleEndian) {
  const std::string bytes = wire::Writer{}
                                .put(std::uint32_t{0x01020304})
                                .put(std::int64_t{-2})
                                .put_bytes("hi")
                                .put(std::uint8_t{7})
                                .str();
  EXPECT_EQ(bytes.substr(0, 4), (std::string{'\4', '\3', '\2', '\1'}));
  wire::Reader in(bytes, "test");
  EXPECT_EQ(in.get<std::uint32_t>(), 0x01020304u);
  EXPECT_EQ(in.get<std::int64_t>(), -2);
  EXPECT_EQ(in.get_bytes(16), "hi");
  EXPECT_EQ(in.get<std::uint8_t>(), 7);
  in.finish();
}

TEST(Wire, EveryTruncationIsAProtocolError) {
  const std::string bytes =
      wire::Writer{}.put(std::uint32_t{1}).put_bytes("payload").put(std::uint16_t{9}).str();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    (void)message_of(
        [&] {
          wire::Reader in(std::string_view(bytes).substr(0, cut), "record");
          (void)in.get<std::uint32_t>();
          (void)in.get_bytes(64);
          (void)in.get<std::uint16_t>();
        },
        ErrorCode::protocol);
  }
}

TEST(Wire, CapsFieldsBeforeReadingThemAndRefusesTrailingBytes) {
  const std::string bytes = wire::Writer{}.put_bytes("0123456789").str();
  wire::Reader capped(bytes, "record");
  (void)message_of([&] { (void)capped.get_bytes(9); }, ErrorCode::protocol);
  wire::Reader trailing(bytes, "record");
  (void)trailing.get<std::uint32_t>();
  (void)message_of([&] { trailing.finish(); }, ErrorCode::protocol);
}

TEST(Deadline, CountsDownAndRefusesNegativeTimeouts) {
  EXPECT_TRUE(Deadline::after(Duration{0}).expired());
  EXPECT_FALSE(Deadline::after(Duration::max()).expired());
  EXPECT_EQ(Deadline::after(Duration{0}).left(), Duration{0});
  (void)message_of([] { (void)Deadline::after(Duration{-1}); }, ErrorCode::invalid_argument);
}

TEST(Error, IsOneLineWhateverItQuotes) {
  EXPECT_EQ(Error(ErrorCode::system, "plain").message(), "plain");
  EXPECT_EQ(Error(ErrorCode::system, "name 'a\nb\t\x1b[31m\x7f'").message(),
            "name 'a\\x0ab\\x09\\x1b[31m\\x7f'");
  EXPECT_EQ(Error(ErrorCode::system, "f\xc3\xbcr").message(), "f\xc3\xbcr") << "UTF-8 stays";
  for (const char* whole : {"\u00a0", "\u00e9", "\u20ac", "\ud7ff", "\U0001f600", "\U0010ffff"})
    EXPECT_EQ(printable(whole), whole);
  EXPECT_EQ(printable("x\xffy\xc3"), "x\\xffy\\xc3") << "what is not UTF-8";
  EXPECT_EQ(printable("\xc2\x9bm"), "\\xc2\\x9bm") << "a terminal takes U+009B for ESC [";
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80"),
            "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
}

TEST(Errno, SaysTextAndName) {
  EXPECT_NE(errno_text(EACCES).find("EACCES"), std::string::npos);
  (void)message_of([] { fail_errno(ENOMEM, "mmap"); }, ErrorCode::out_of_resources);
  (void)message_of([] { fail_errno(EACCES, "open"); }, ErrorCode::system);
}

TEST(Errno, NamesRunningOutOfDescriptorsAndTheLimitToRaise) {
  for (const int err : {EMFILE, ENFILE, ETOOMANYREFS}) {
    const std::string message = message_of([&] { fail_errno(err, "accept"); }, ErrorCode::out_of_resources);
    EXPECT_EQ(message.rfind("accept: ", 0), 0U) << message;
    EXPECT_NE(message.find("file descriptors"), std::string::npos) << message;
    EXPECT_NE(message.find(::strerrorname_np(err)), std::string::npos) << message;
    EXPECT_NE(message.find(err == ENFILE ? "fs.file-max" : "raise ulimit -n, which is "), std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace onehop
