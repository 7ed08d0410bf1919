// SPDX-License-Identifier: Apache-2.0
// Conformance tests that run on every kind of store.
#include <atomic>

#include "store/store_test_util.h"

namespace onehop {
namespace {

using namespace std::chrono_literals;

/// A store together with the objects that it needs.
struct Fixture {
  std::shared_ptr<TemporaryDirectory> directory;
  std::shared_ptr<TcpStoreServer> server;
  std::shared_ptr<Store> store;
};

struct Kind {
  const char* name;
  Fixture (*make)();
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}  // prints the test's name instead of addresses

Fixture make_memory() {
  return {.directory = {}, .server = {}, .store = memory_store()};
}

Fixture make_file() {
  auto directory = std::make_shared<TemporaryDirectory>();
  auto store = file_store(directory->path());
  return {.directory = std::move(directory), .server = {}, .store = std::move(store)};
}

Fixture make_tcp() {
  std::shared_ptr<TcpStoreServer> server = TcpStoreServer::start({});
  auto store = tcp_store("127.0.0.1", server->port());
  return {.directory = {}, .server = std::move(server), .store = std::move(store)};
}

Fixture make_prefix() {
  return {.directory = {}, .server = {}, .store = prefix_store(memory_store(), "group")};
}

Fixture make_callback() {
  const std::shared_ptr<Store> inner = memory_store();
  return {.directory = {},
          .server = {},
          .store = callback_store(
              {.set = [=](auto key, auto value, Duration timeout) { inner->set(key, value, timeout); },
               .get_for = [=](auto key, Duration timeout) { return inner->get_for(key, timeout); },
               .add = [=](auto key, auto delta, Duration timeout) { return inner->add(key, delta, timeout); },
               .compare_set =
                   [=](auto key, auto expected, auto desired, Duration timeout) {
                     return inner->compare_set(key, expected, desired, timeout);
                   },
               .delete_key = [=](auto key, Duration timeout) { return inner->delete_key(key, timeout); }})};
}

class StoreConformance : public ::testing::TestWithParam<Kind> {
 protected:
  Fixture fixture_ = GetParam().make();
  Store& store_ = *fixture_.store;
};

INSTANTIATE_TEST_SUITE_P(AllStores, StoreConformance,
                         ::testing::Values(Kind{"Memory", make_memory}, Kind{"File", make_file},
                                           Kind{"Tcp", make_tcp}, Kind{"Prefix", make_prefix},
                                           Kind{"Callback", make_callback}),
                         [](const auto& kind) { return std::string(kind.param.name); });

std::string all_bytes() {
  std::string out;
  for (int c = 0; c < 256; ++c) out.push_back(static_cast<char>(c));
  return out;
}

TEST_P(StoreConformance, ReturnsWhatWasSetLast) {
  store_.set("key", "first");
  EXPECT_EQ(store_.get("key"), "first");
  store_.set("key", "second, longer");
  EXPECT_EQ(store_.get("key"), "second, longer");
  store_.set("key", "");
  EXPECT_EQ(store_.get("key"), "");
}

TEST_P(StoreConformance, AKeyMayBeAnyBytes) {
  const std::vector<std::string> keys = {
      "",          "a",         "A",     "a/b",       "a%2Fb",
      ".",         "..",        "../up", "key",       " ",
      "line\nend", all_bytes(), "lock",  "temporary", std::string(1, '\0')};
  for (std::size_t i = 0; i < keys.size(); ++i) store_.set(keys[i], std::to_string(i));
  for (std::size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ(store_.get(keys[i], 0ms), std::to_string(i)) << keys[i];
}

TEST_P(StoreConformance, AValueMayBeAnyBytesUpToTheCap) {
  store_.set("bytes", all_bytes());
  EXPECT_EQ(store_.get("bytes"), all_bytes());
  const std::string largest(kMaxValueBytes, 'v');
  store_.set("largest", largest);
  EXPECT_TRUE(store_.get("largest") == largest);
}

TEST_P(StoreConformance, LongKeysAreToldApart) {
  const std::string room(GetParam().make == make_prefix ? std::string_view("group/").size() : 0, 'p');
  std::string one(kMaxKeyBytes - room.size(), 'k');
  std::string other = one;
  other.back() = 'l';
  store_.set(one, "one");
  store_.set(other, "other");
  EXPECT_EQ(store_.get(one), "one");
  EXPECT_EQ(store_.get(other), "other");
}

TEST_P(StoreConformance, RefusesKeysAndValuesBeyondTheCaps) {
  const std::string long_key(kMaxKeyBytes + 1, 'k');
  const std::string long_value(kMaxValueBytes + 1, 'v');
  for (const auto& refused : std::vector<std::function<void()>>{
           [&] { store_.set(long_key, ""); }, [&] { (void)store_.get_for(long_key, 0ms); },
           [&] { (void)store_.add(long_key, 1); }, [&] { (void)store_.compare_set(long_key, "", ""); },
           [&] { (void)store_.delete_key(long_key); }}) {
    EXPECT_NE(message_of(refused, ErrorCode::invalid_argument).find("at most 8192"), std::string::npos);
  }
  for (const auto& refused : std::vector<std::function<void()>>{
           [&] { store_.set("key", long_value); }, [&] { (void)store_.compare_set("key", "", long_value); },
           [&] { (void)store_.compare_set("key", long_value, ""); }}) {
    EXPECT_NE(message_of(refused, ErrorCode::invalid_argument).find("at most 8388608"), std::string::npos);
  }
  EXPECT_EQ(store_.get_for("key", 0ms), std::nullopt);
}

TEST_P(StoreConformance, AskingWithoutWaitingTellsMissingFromEmpty) {
  EXPECT_EQ(store_.get_for("key", 0ms), std::nullopt);
  store_.set("key", "");
  EXPECT_EQ(store_.get_for("key", 0ms), "");
}

TEST_P(StoreConformance, GetWaitsUntilAnotherThreadSetsTheKey) {
  std::thread setter([&] { store_.set("late", "value"); });
  EXPECT_EQ(store_.get("late"), "value");
  setter.join();
}

TEST_P(StoreConformance, AddAndCompareSetAlsoEndAWait) {
  std::thread adding([&] { (void)store_.add("counter", 7); });
  EXPECT_EQ(store_.get("counter"), "7");
  adding.join();
  std::thread exchanger([&] { (void)store_.compare_set("chosen", "", "me"); });
  EXPECT_EQ(store_.get("chosen"), "me");
  exchanger.join();
}

TEST_P(StoreConformance, GetTimesOutWithinItsDeadlineAndNamesKeyAndStore) {
  const Stopwatch watch;
  const std::string message = message_of([&] { (void)store_.get("never\nset", 150ms); }, ErrorCode::timeout);
  EXPECT_GE(watch.elapsed(), 150ms);
  EXPECT_LE(watch.elapsed(), 150ms + kPromise + kBusyMachine);
  EXPECT_NE(message.find("'never\\x0aset'"), std::string::npos) << message;
  EXPECT_NE(message.find("150 ms"), std::string::npos) << message;
  EXPECT_NE(message.find(store_.describe()), std::string::npos) << message;
}

TEST_P(StoreConformance, WaitReturnsOnceAllKeysExist) {
  const std::vector<std::string> keys = {"w0", "w1", "w2"};
  std::thread setter([&] {
    for (const std::string& key : {keys[2], keys[0], keys[1]}) store_.set(key, "x");
  });
  store_.wait(keys);
  for (const std::string& key : keys) EXPECT_EQ(store_.get_for(key, 0ms), "x");
  setter.join();
}

TEST_P(StoreConformance, WaitNamesTheFirstMissingKey) {
  store_.set("here", "");
  const std::vector<std::string> keys = {"here", "missing1", "missing2"};
  const std::string message = message_of([&] { store_.wait(keys, 20ms); }, ErrorCode::timeout);
  EXPECT_NE(message.find("'missing1'"), std::string::npos) << message;
}

TEST_P(StoreConformance, AZeroTimeoutMakesOneAttemptOfEveryOperation) {
  store_.set("key", "value", 0ms);
  EXPECT_EQ(store_.get_for("key", 0ms), "value");
  EXPECT_EQ(store_.add("count", 2, 0ms), 2);
  EXPECT_EQ(store_.compare_set("key", "value", "other", 0ms), "other");
  EXPECT_TRUE(store_.delete_key("key", 0ms));
  EXPECT_EQ(store_.get_for("key", 0ms), std::nullopt);
}

TEST_P(StoreConformance, RefusesNegativeTimeouts) {
  (void)message_of([&] { store_.set("key", "value", -1ms); }, ErrorCode::invalid_argument);
  (void)message_of([&] { (void)store_.add("key", 1, -1ms); }, ErrorCode::invalid_argument);
  (void)message_of([&] { (void)store_.compare_set("key", "", "x", -1ms); }, ErrorCode::invalid_argument);
  (void)message_of([&] { (void)store_.delete_key("key", -1ms); }, ErrorCode::invalid_argument);
  EXPECT_EQ(store_.get_for("key", 0ms), std::nullopt) << "nothing was changed";
  (void)message_of([&] { (void)store_.get_for("key", -1ms); }, ErrorCode::invalid_argument);
}

TEST_P(StoreConformance, TimeoutsFarInTheFutureDoNotOverflow) {
  store_.set("key", "v");
  EXPECT_EQ(store_.get_for("key", Duration::max()), "v");
  std::thread setter([&] { store_.set("later", "v"); });
  EXPECT_EQ(store_.get_for("later", Duration::max()), "v");
  setter.join();
}

TEST_P(StoreConformance, AddCountsFromZeroInBothDirections) {
  EXPECT_EQ(store_.add("counter", 5), 5);
  EXPECT_EQ(store_.add("counter", -8), -3);
  EXPECT_EQ(store_.add("counter", 0), -3);
  EXPECT_EQ(store_.get("counter"), "-3");
  store_.set("counter", "40");
  EXPECT_EQ(store_.add("counter", 2), 42);
}

TEST_P(StoreConformance, AddRefusesWhatIsNoCounterAndLeavesIt) {
  for (const char* text : {"", "abc", "1x", " 1", "1.5", "9223372036854775808"}) {
    store_.set("text", text);
    const std::string message = message_of([&] { (void)store_.add("text", 1); }, ErrorCode::invalid_argument);
    EXPECT_NE(message.find("text': it holds"), std::string::npos) << message;
    EXPECT_EQ(store_.get("text"), text);
  }
  store_.set("full", "9223372036854775807");
  EXPECT_NE(message_of([&] { (void)store_.add("full", 1); }, ErrorCode::invalid_argument).find("overflow"),
            std::string::npos);
  EXPECT_EQ(store_.get("full"), "9223372036854775807");
}

TEST_P(StoreConformance, CompareSetWritesOnlyOverTheExpectedValue) {
  EXPECT_EQ(store_.compare_set("key", "wrong", "new"), "wrong");
  EXPECT_EQ(store_.get_for("key", 0ms), std::nullopt);
  EXPECT_EQ(store_.compare_set("key", "", "one"), "one");
  EXPECT_EQ(store_.compare_set("key", "", "two"), "one");
  EXPECT_EQ(store_.compare_set("key", "zero", "two"), "one");
  EXPECT_EQ(store_.get("key"), "one");
  EXPECT_EQ(store_.compare_set("key", "one", "two"), "two");
  EXPECT_EQ(store_.get("key"), "two");
  EXPECT_EQ(store_.compare_set("key", "two", ""), "");
  EXPECT_EQ(store_.compare_set("key", "", "three"), "three");
}

TEST_P(StoreConformance, DeleteTellsWhetherTheKeyExisted) {
  EXPECT_FALSE(store_.delete_key("key"));
  store_.set("key", "value");
  EXPECT_TRUE(store_.delete_key("key"));
  EXPECT_FALSE(store_.delete_key("key"));
  EXPECT_EQ(store_.get_for("key", 0ms), std::nullopt);
  EXPECT_EQ(store_.add("key", 1), 1);
}

TEST_P(StoreConformance, NoAdditionIsLostAmongManyThreads) {
  constexpr int kThreads = 8;
  constexpr int kEach = 40;
  run_threads(kThreads, [&](int) {
    for (int i = 0; i < kEach; ++i) (void)store_.add("sum", 1);
  });
  EXPECT_EQ(store_.get("sum"), std::to_string(kThreads * kEach));
}

TEST_P(StoreConformance, EveryExchangeAmongManyThreadsHasOneWinner) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 25;
  std::atomic<int> wins = 0;
  run_threads(kThreads, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const std::string mine = std::to_string(thread);
      if (store_.compare_set("round" + std::to_string(round), "", mine) == mine) ++wins;
    }
  });
  EXPECT_EQ(wins, kRounds);
}

TEST_P(StoreConformance, ReadersNeverSeeAPartOfAValue) {
  const std::string first(100'000, 'a');
  const std::string second(70'000, 'b');
  store_.set("key", first);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) store_.set("key", i % 2 == 0 ? second : first);
    stop = true;
  });
  while (!stop) {
    const std::string seen = store_.get("key");
    ASSERT_TRUE(seen == first || seen == second);
  }
  writer.join();
}

TEST_P(StoreConformance, AWaitingThreadHoldsUpNoOther) {
  std::atomic<int> woken = 0;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back([&] {
      if (store_.get("signal") == "go") ++woken;
    });
  }
  const Stopwatch watch;
  for (int i = 0; i < 20; ++i) store_.set("other", std::to_string(i));
  EXPECT_EQ(store_.get("other"), "19");
  EXPECT_EQ(woken, 0);
  store_.set("signal", "go");
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(woken, 3);
  EXPECT_LT(watch.elapsed(), kDefaultTimeout / 2);
}

TEST(PrefixStore, KeepsGroupsApartAndNamesBothPrefixAndStore) {
  const std::shared_ptr<Store> inner = memory_store();
  const std::shared_ptr<Store> red = prefix_store(inner, "red");
  const std::shared_ptr<Store> blue = prefix_store(inner, "blue");
  red->set("key", "r");
  blue->set("key", "b");
  EXPECT_EQ(red->get("key"), "r");
  EXPECT_EQ(inner->get("red/key"), "r");
  EXPECT_EQ(inner->get("blue/key"), "b");
  EXPECT_EQ(red->describe(), "memory store under 'red/'");
}

TEST(PrefixStore, CountsThePrefixInTheKeysCap) {
  const std::shared_ptr<Store> store = prefix_store(memory_store(), "0123456789");
  store->set(std::string(kMaxKeyBytes - 11, 'k'), "fits");
  (void)message_of([&] { store->set(std::string(kMaxKeyBytes - 10, 'k'), ""); }, ErrorCode::invalid_argument);
  (void)message_of([&] { (void)prefix_store(memory_store(), std::string(kMaxKeyBytes, 'p')); },
                   ErrorCode::invalid_argument);
  (void)message_of([&] { (void)prefix_store(nullptr, "p"); }, ErrorCode::invalid_argument);
}

TEST(CallbackStore, RefusesAMissingCallback) {
  const std::string message = message_of([] { (void)callback_store({}); }, ErrorCode::invalid_argument);
  EXPECT_NE(message.find("compare_set"), std::string::npos) << message;
}

TEST(CallbackStore, TurnsForeignExceptionsIntoErrorsThatNameTheCall) {
  const std::shared_ptr<Store> store = callback_store(
      {.set = [](auto, auto, auto) { throw std::runtime_error("disk on fire"); },
       .get_for = [](auto, Duration) -> std::optional<std::string> { throw 42; },
       .add = [](auto, auto, auto) -> std::int64_t { throw Error(ErrorCode::refused, "mine"); },
       .compare_set = [](auto, auto, auto, auto) { return std::string(); },
       .delete_key = [](auto, auto) { return false; },
       .description = "my store"});
  EXPECT_EQ(message_of([&] { store->set("k", "v"); }, ErrorCode::system),
            "my store: set threw: disk on fire");
  EXPECT_NE(message_of([&] { (void)store->get("k"); }, ErrorCode::system).find("get_for"), std::string::npos);
  EXPECT_EQ(message_of([&] { (void)store->add("k", 1); }, ErrorCode::refused), "mine");
}

TEST(MemoryStore, HoldsNoMoreThanItsCap) {
  const std::shared_ptr<Store> store = memory_store();
  const std::string value(kMaxValueBytes, 'v');
  for (int i = 0; i < 31; ++i) store->set(std::to_string(i), value);
  const std::string message =
      message_of([&] { store->set("one too many", value); }, ErrorCode::out_of_resources);
  EXPECT_NE(message.find("'one too many'"), std::string::npos) << message;
  store->set("0", value);  // overwriting needs no additional memory
  EXPECT_TRUE(store->delete_key("1"));
  store->set("fits now", value);
}

}  // namespace
}  // namespace onehop
