// SPDX-License-Identifier: Apache-2.0
// Every operation of an unresponsive store (a stopped server, a lock held by another process) ends by the
// caller's deadline.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <functional>

#include "store/store_test_util.h"
#include "store/tcp_test_util.h"

namespace onehop {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr Duration kTimeout{200};
constexpr Duration kAllowed = kTimeout + kPromise + kBusyMachine;

struct Operation {
  const char* name;
  std::function<void(Store&, Duration)> call;
};

/// The operations that change a key, which need the store's lock or its server.
const Operation kChanges[] = {
    {"set", [](Store& store, Duration timeout) { store.set("the key", "value", timeout); }},
    {"add", [](Store& store, Duration timeout) { (void)store.add("the key", 1, timeout); }},
    {"compare_set",
     [](Store& store, Duration timeout) { (void)store.compare_set("the key", "", "x", timeout); }},
    {"delete_key", [](Store& store, Duration timeout) { (void)store.delete_key("the key", timeout); }},
};

void expect_to_expire(const Operation& operation, Store& store, Duration timeout) {
  SCOPED_TRACE(operation.name);
  const Stopwatch watch;
  const std::string message = message_of([&] { operation.call(store, timeout); }, ErrorCode::timeout);
  EXPECT_LE(watch.elapsed(), timeout + kPromise + kBusyMachine);
  EXPECT_THAT(message, ::testing::StartsWith(operation.name));
  EXPECT_THAT(message, HasSubstr("'the key'"));
  EXPECT_THAT(message, HasSubstr(std::to_string(timeout.count()) + " ms"));
  EXPECT_THAT(message, HasSubstr(store.describe().substr(0, store.describe().find(" ("))));
}

/// An exchange whose peer never arrives, while the store also blocks this rank's own key.
void expect_exchange_to_expire(const std::shared_ptr<Store>& store) {
  StoreExchange exchange(store, "exchange", Rank{0}, 2);
  const Stopwatch watch;
  (void)message_of([&] { exchange.barrier(kTimeout); }, ErrorCode::timeout);
  EXPECT_LE(watch.elapsed(), kAllowed);
}

/// The lock of a file store, held as by another process: flock belongs to the open file description.
class HeldLock {
 public:
  explicit HeldLock(const std::filesystem::path& directory)
      : file_(::open((directory / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (::flock(file_.get(), LOCK_EX) != 0) fail_errno(errno, "flock");
  }

 private:
  os::UniqueFd file_;
};

TEST(StoreDeadlines, ADirectoryWhoseLockIsHeldKeepsNoOperationLonger) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  store->set("present", "value");
  const HeldLock lock(directory.path());
  for (const Operation& operation : kChanges) expect_to_expire(operation, *store, kTimeout);
  expect_to_expire(kChanges[0], *store, 0ms);
  EXPECT_THAT(message_of([&] { prefix_store(store, "x")->set("key", "", 0ms); }, ErrorCode::timeout),
              HasSubstr("'x/key'"));
  EXPECT_EQ(store->get_for("present", 0ms), "value") << "readers need no lock";
  expect_exchange_to_expire(store);
}

TEST(StoreDeadlines, AStoppedServerKeepsNoOperationLonger) {
  const ServerProcess server;
  const auto store = tcp_store("127.0.0.1", server.port());
  store->set("key", "value");
  server.stop();
  // The first uses the existing connection; the others must open one.
  for (const Operation& operation : kChanges) expect_to_expire(operation, *store, kTimeout);
  expect_to_expire(kChanges[0], *store, 0ms);
  expect_to_expire({"get", [](Store& s, Duration timeout) { (void)s.get("the key", timeout); }}, *store,
                   kTimeout);
  expect_exchange_to_expire(store);
}

TEST(StoreDeadlines, AStoppedServerIsLookedAtWithoutWaitingAndNamedAfterwards) {
  const ServerProcess server;
  const auto store = tcp_store("127.0.0.1", server.port());
  store->set("key", "value");
  server.stop();
  const Stopwatch watch;
  for (int look = 0; look < 20; ++look) EXPECT_EQ(store->get_for("key", 0ms), std::nullopt);
  EXPECT_LE(watch.elapsed(), kPromise + kBusyMachine) << "the 20 looks together";
  EXPECT_THAT(store->describe(), HasSubstr("does not answer"));
}

TEST(StoreDeadlines, AServerThatGoesOnServesTheStoreAgain) {
  const ServerProcess server;
  const auto store = tcp_store("127.0.0.1", server.port());
  store->set("key", "value");
  server.stop();
  (void)message_of([&] { store->set("another key", "value", 0ms); }, ErrorCode::timeout);
  server.go_on();
  EXPECT_EQ(store->get("key", 20s), "value");
  EXPECT_EQ(store->describe().find("answer"), std::string::npos);
  EXPECT_EQ(store->get_for("key", 0ms), "value");
}

TEST(StoreDeadlines, OpeningAStoreOfAStoppedServerEndsInTime) {
  const ServerProcess server;
  server.stop();
  const Stopwatch watch;
  const std::string message =
      message_of([&] { (void)tcp_store("127.0.0.1", server.port(), kTimeout); }, ErrorCode::timeout);
  EXPECT_LE(watch.elapsed(), kAllowed);
  EXPECT_THAT(message, HasSubstr("127.0.0.1:" + std::to_string(server.port())));
  EXPECT_THAT(message, HasSubstr("200 ms"));
}

TEST(StoreDeadlines, OpeningAStoreWithAZeroTimeoutMakesOneAttempt) {
  const auto server = TcpStoreServer::start({});
  EXPECT_NO_THROW((void)tcp_store("127.0.0.1", server->port(), 0ms));
  EXPECT_NO_THROW((void)tcp_store("localhost", server->port(), 0ms));
}

TEST(StoreDeadlines, ACallbackIsToldItsTimeout) {
  std::vector<Duration> told;
  const auto store = callback_store({.set = [&](auto, auto, Duration timeout) { told.push_back(timeout); },
                                     .get_for = [&](auto, Duration timeout) -> std::optional<std::string> {
                                       told.push_back(timeout);
                                       return std::nullopt;
                                     },
                                     .add = [&](auto, auto, Duration timeout) -> std::int64_t {
                                       told.push_back(timeout);
                                       return 0;
                                     },
                                     .compare_set =
                                         [&](auto, auto, auto, Duration timeout) {
                                           told.push_back(timeout);
                                           return std::string();
                                         },
                                     .delete_key =
                                         [&](auto, Duration timeout) {
                                           told.push_back(timeout);
                                           return false;
                                         }});
  const auto prefixed = prefix_store(store, "x");
  for (const Operation& operation : kChanges) operation.call(*prefixed, 4711ms);
  (void)prefixed->get_for("the key", 4711ms);
  EXPECT_THAT(told, ::testing::AllOf(::testing::SizeIs(5), ::testing::Each(4711ms)));
}

}  // namespace
}  // namespace onehop
