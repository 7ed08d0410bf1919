// SPDX-License-Identifier: Apache-2.0
#include "onehop/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "onehop/group.h"

#include "c_api/guard.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};
using StorePtr = std::unique_ptr<onehop_store_t, Destroyer<onehop_store_destroy>>;
using ServerPtr = std::unique_ptr<onehop_tcp_server_t, Destroyer<onehop_tcp_server_destroy>>;

StorePtr memory() {
  onehop_store_t* store = nullptr;
  EXPECT_EQ(onehop_store_memory(&store), ONEHOP_OK);
  return StorePtr(store);
}

/// Sets, gets, waits, counts, exchanges and deletes.
void expect_round_trip(onehop_store_t* store) {
  constexpr std::array<char, 3> kValue{'a', '\0', 'b'};
  EXPECT_EQ(onehop_store_set(store, "key", kValue.data(), kValue.size(), ONEHOP_TIMEOUT_DEFAULT), ONEHOP_OK)
      << onehop_last_error();
  char* value = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(onehop_store_get(store, "key", 0, &value, &bytes), ONEHOP_OK) << onehop_last_error();
  EXPECT_EQ(std::string(value, bytes), std::string(kValue.data(), kValue.size()));
  EXPECT_EQ(value[bytes], '\0');
  onehop_free(value);

  const std::array<const char*, 1> keys{"key"};
  EXPECT_EQ(onehop_store_wait(store, keys.data(), keys.size(), 0), ONEHOP_OK) << onehop_last_error();

  std::int64_t sum = 0;
  EXPECT_EQ(onehop_store_add(store, "count", 5, ONEHOP_TIMEOUT_DEFAULT, &sum), ONEHOP_OK)
      << onehop_last_error();
  EXPECT_EQ(onehop_store_add(store, "count", -7, ONEHOP_TIMEOUT_DEFAULT, &sum), ONEHOP_OK)
      << onehop_last_error();
  EXPECT_EQ(sum, -2);

  ASSERT_EQ(
      onehop_store_compare_set(store, "slot", nullptr, 0, "mine", 4, ONEHOP_TIMEOUT_DEFAULT, &value, &bytes),
      ONEHOP_OK)
      << onehop_last_error();
  EXPECT_EQ(std::string(value, bytes), "mine");
  onehop_free(value);
  ASSERT_EQ(onehop_store_compare_set(store, "slot", "yours", 5, "theirs", 6, ONEHOP_TIMEOUT_DEFAULT, &value,
                                     &bytes),
            ONEHOP_OK);
  EXPECT_EQ(std::string(value, bytes), "mine");
  onehop_free(value);

  int existed = -1;
  EXPECT_EQ(onehop_store_delete(store, "key", ONEHOP_TIMEOUT_DEFAULT, &existed), ONEHOP_OK);
  EXPECT_EQ(existed, 1);
  EXPECT_EQ(onehop_store_delete(store, "key", ONEHOP_TIMEOUT_DEFAULT, &existed), ONEHOP_OK);
  EXPECT_EQ(existed, 0);
  value = nullptr;
  EXPECT_EQ(onehop_store_get(store, "key", 0, &value, &bytes), ONEHOP_ERROR_TIMEOUT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("key"));
  EXPECT_EQ(value, nullptr);
}

TEST(CApi, ReportsTheVersionOfItsHeaders) {
  EXPECT_STREQ(onehop_version(), ONEHOP_VERSION_STRING);
}

TEST(CApi, NamesEveryStatusAndSurvivesUnknownOnes) {
  EXPECT_STREQ(onehop_status_name(ONEHOP_OK), "ok");
  for (int status = ONEHOP_ERROR_INVALID_ARGUMENT; status <= ONEHOP_ERROR_DRIVER; ++status) {
    EXPECT_STRNE(onehop_status_name(status), "unknown") << status;
  }
  EXPECT_STREQ(onehop_status_name(ONEHOP_ERROR_DRIVER + 1), "unknown");
  EXPECT_STREQ(onehop_status_name(-1), "unknown");
}

TEST(CApi, ElementTypesReductionsAndWaysToShareRoundTripThroughTheirNames) {
  for (int type = 0; type < kDTypeCount; ++type) {
    onehop_dtype_t parsed = -1;
    EXPECT_EQ(onehop_dtype_parse(onehop_dtype_name(type), &parsed), ONEHOP_OK);
    EXPECT_EQ(parsed, type);
    EXPECT_EQ(onehop_dtype_size(type), size_of(static_cast<DType>(type)));
  }
  for (int op = 0; op < kReduceOpCount; ++op) {
    onehop_op_t parsed = -1;
    EXPECT_EQ(onehop_op_parse(onehop_op_name(op), &parsed), ONEHOP_OK);
    EXPECT_EQ(parsed, op);
  }
  for (int share_by = 0; share_by < kShareByCount; ++share_by) {
    onehop_share_by_t parsed = -1;
    EXPECT_EQ(onehop_share_by_parse(onehop_share_by_name(share_by), &parsed), ONEHOP_OK);
    EXPECT_EQ(parsed, share_by);
  }
  EXPECT_STREQ(onehop_share_by_name(ONEHOP_SHARE_BY_FABRIC), "fabric");
  for (const int bad : {-1, kShareByCount, 1 << 30}) EXPECT_STREQ(onehop_share_by_name(bad), "unknown");
  onehop_share_by_t unchanged = 77;
  EXPECT_EQ(onehop_share_by_parse("smoke", &unchanged), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("known: auto fd fabric ipc"));
  EXPECT_EQ(unchanged, 77);
}

TEST(CApi, NumbersThatAreNoElementTypeOrReductionAreErrorsNotCrashes) {
  for (const int bad : {-1, kDTypeCount, 256, 1 << 30}) {
    EXPECT_EQ(onehop_dtype_size(bad), 0u);
    EXPECT_STREQ(onehop_dtype_name(bad), "unknown");
    EXPECT_STREQ(onehop_op_name(bad), "unknown");
  }
  onehop_dtype_t type = 77;
  EXPECT_EQ(onehop_dtype_parse("f31", &type), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("f31"));
  EXPECT_EQ(type, 77) << "results are written only on success";
}

TEST(CApi, NullPointersAreErrorsThatNameTheParameter) {
  const StorePtr store = memory();
  onehop_store_t* made = nullptr;
  char* value = nullptr;
  std::size_t bytes = 0;
  const auto expect_named = [](onehop_status_t status, const char* name) {
    EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT) << name;
    EXPECT_THAT(onehop_last_error(), HasSubstr(std::string(name) + " must not be NULL"));
    EXPECT_EQ(onehop_last_error_rank(), -1);
  };
  expect_named(onehop_store_memory(nullptr), "store");
  expect_named(onehop_store_file(nullptr, &made), "directory");
  expect_named(onehop_store_file("/tmp", nullptr), "store");
  expect_named(onehop_store_prefix(nullptr, "p", &made), "store");
  expect_named(onehop_store_prefix(store.get(), nullptr, &made), "prefix");
  expect_named(onehop_store_prefix(store.get(), "p", nullptr), "prefixed");
  expect_named(onehop_store_tcp(nullptr, &made), "options");
  expect_named(onehop_tcp_server_start(nullptr, nullptr), "server");
  expect_named(onehop_store_callbacks(nullptr, &made), "callbacks");
  expect_named(onehop_reply_set(nullptr, "x", 1), "reply");
  expect_named(onehop_store_set(nullptr, "k", "v", 1, ONEHOP_TIMEOUT_DEFAULT), "store");
  expect_named(onehop_store_set(store.get(), nullptr, "v", 1, ONEHOP_TIMEOUT_DEFAULT), "key");
  expect_named(onehop_store_set(store.get(), "k", nullptr, 1, ONEHOP_TIMEOUT_DEFAULT), "value");
  expect_named(onehop_store_get(store.get(), "k", 0, nullptr, &bytes), "value");
  expect_named(onehop_store_get(store.get(), "k", 0, &value, nullptr), "bytes");
  expect_named(onehop_store_wait(store.get(), nullptr, 1, 0), "keys");
  expect_named(onehop_store_add(nullptr, "k", 1, ONEHOP_TIMEOUT_DEFAULT, nullptr), "store");
  expect_named(
      onehop_store_compare_set(store.get(), "k", nullptr, 2, "v", 1, ONEHOP_TIMEOUT_DEFAULT, &value, &bytes),
      "expected");
  expect_named(onehop_store_delete(store.get(), nullptr, ONEHOP_TIMEOUT_DEFAULT, nullptr), "key");
  expect_named(onehop_dtype_parse(nullptr, nullptr), "name");
  expect_named(onehop_topology_probe_json(nullptr), "json");
  expect_named(onehop_host_id(nullptr), "id");
  EXPECT_EQ(made, nullptr);

  onehop_store_destroy(nullptr);
  onehop_tcp_server_destroy(nullptr);
  onehop_free(nullptr);
  onehop_tcp_options_init(nullptr, sizeof(onehop_tcp_options_t));
  EXPECT_EQ(onehop_tcp_server_port(nullptr), 0);
}

TEST(CApi, MessagesBelongToTheThreadThatGotThemAndOutliveSuccess) {
  EXPECT_EQ(onehop_store_memory(nullptr), ONEHOP_ERROR_INVALID_ARGUMENT);
  const std::string mine = onehop_last_error();
  std::thread([] {
    EXPECT_STREQ(onehop_last_error(), "");
    onehop_op_t op = 0;
    EXPECT_EQ(onehop_op_parse("median", &op), ONEHOP_ERROR_INVALID_ARGUMENT);
  }).join();
  const StorePtr store = memory();
  EXPECT_EQ(onehop_last_error(), mine);
}

TEST(CApi, ExceptionsOfEveryKindBecomeStatusCodes) {
  EXPECT_EQ(c_api::guard([] { throw Error(ErrorCode::peer_lost, "rank 3 died", Rank{3}); }),
            ONEHOP_ERROR_PEER_LOST);
  EXPECT_STREQ(onehop_last_error(), "rank 3 died");
  EXPECT_EQ(onehop_last_error_rank(), 3);
  EXPECT_EQ(c_api::guard([] { throw std::bad_alloc(); }), ONEHOP_ERROR_OUT_OF_RESOURCES);
  EXPECT_EQ(onehop_last_error_rank(), -1);
  EXPECT_EQ(c_api::guard([] { throw std::runtime_error("odd"); }), ONEHOP_ERROR_SYSTEM);
  EXPECT_STREQ(onehop_last_error(), "odd");
  EXPECT_EQ(c_api::guard([] { throw 7; }), ONEHOP_ERROR_SYSTEM);
  EXPECT_STRNE(onehop_last_error(), "");
}

TEST(CApi, OverlongMessagesAreCutNotOverrun) {
  const std::string huge(100'000, 'x');
  EXPECT_EQ(c_api::guard([&] { throw Error(ErrorCode::system, huge); }), ONEHOP_ERROR_SYSTEM);
  const std::string kept = onehop_last_error();
  EXPECT_LT(kept.size(), huge.size());
  EXPECT_EQ(kept, huge.substr(0, kept.size()));
}

TEST(CApi, OverlongMessagesAreCutBetweenCharacters) {
  for (const std::string before : {"", "x"}) {
    std::string umlauts = before;
    for (int i = 0; i < 5000; ++i) umlauts += "\xc3\xbc";
    EXPECT_EQ(c_api::guard([&] { throw Error(ErrorCode::system, umlauts); }), ONEHOP_ERROR_SYSTEM);
    const std::string kept = onehop_last_error();
    EXPECT_EQ(kept.back(), '\xbc') << "not half a character";
    EXPECT_EQ(kept, umlauts.substr(0, kept.size()));
  }
}

TEST(CApiStore, MemoryStoreRoundTrips) {
  expect_round_trip(memory().get());
}

TEST(CApiStore, PrefixStoreSharesItsParentAndKeepsItAlive) {
  StorePtr parent = memory();
  onehop_store_t* made = nullptr;
  ASSERT_EQ(onehop_store_prefix(parent.get(), "job", &made), ONEHOP_OK);
  const StorePtr child(made);
  ASSERT_EQ(onehop_store_set(child.get(), "key", "v", 1, ONEHOP_TIMEOUT_DEFAULT), ONEHOP_OK);
  int existed = 0;
  EXPECT_EQ(onehop_store_delete(parent.get(), "job/key", ONEHOP_TIMEOUT_DEFAULT, &existed), ONEHOP_OK);
  EXPECT_EQ(existed, 1);
  parent.reset();
  expect_round_trip(child.get());
}

TEST(CApiStore, FileStoreRoundTrips) {
  std::string directory = (std::filesystem::temp_directory_path() / "onehop-c-api-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  onehop_store_t* made = nullptr;
  ASSERT_EQ(onehop_store_file(directory.c_str(), &made), ONEHOP_OK) << onehop_last_error();
  expect_round_trip(StorePtr(made).get());
  std::filesystem::remove_all(directory);
}

TEST(CApiStore, TcpClientAndServerRoundTripOnAPortTheServerPicks) {
  onehop_tcp_options_t options;
  onehop_tcp_options_init(&options, sizeof options);
  onehop_tcp_server_t* started = nullptr;
  ASSERT_EQ(onehop_tcp_server_start(&options, &started), ONEHOP_OK) << onehop_last_error();
  const ServerPtr server(started);
  options.port = onehop_tcp_server_port(server.get());
  ASSERT_NE(options.port, 0);
  onehop_store_t* made = nullptr;
  ASSERT_EQ(onehop_store_tcp(&options, &made), ONEHOP_OK) << onehop_last_error();
  expect_round_trip(StorePtr(made).get());
}

TEST(CApiStore, TimeoutsMustBeTheDefaultOrNotNegative) {
  const StorePtr store = memory();
  char* value = nullptr;
  std::size_t bytes = 0;
  EXPECT_EQ(onehop_store_get(store.get(), "k", -2, &value, &bytes), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("-2 ms"));
  ASSERT_EQ(onehop_store_set(store.get(), "k", nullptr, 0, ONEHOP_TIMEOUT_DEFAULT), ONEHOP_OK);
  ASSERT_EQ(onehop_store_get(store.get(), "k", ONEHOP_TIMEOUT_DEFAULT, &value, &bytes), ONEHOP_OK);
  EXPECT_EQ(bytes, 0u);
  onehop_free(value);
}

TEST(CApiOptions, AnUninitializedSizeIsRefused) {
  onehop_tcp_options_t options{};
  onehop_store_t* made = nullptr;
  EXPECT_EQ(onehop_store_tcp(&options, &made), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("_init"));
}

TEST(CApiOptions, FieldsThatAnOlderCallerDoesNotHaveAreDefaultsAndAreNotTouched) {
  constexpr std::size_t kOlder = offsetof(onehop_tcp_options_t, timeout_ms);
  onehop_tcp_options_t options;
  std::memset(&options, 0x5a, sizeof options);
  onehop_tcp_options_init(&options, kOlder);
  EXPECT_EQ(options.size, kOlder);
  EXPECT_EQ(options.host, nullptr);
  EXPECT_EQ(options.port, 0x5a5a) << "beyond the caller's structure";
  onehop_tcp_server_t* started = nullptr;
  EXPECT_EQ(onehop_tcp_server_start(&options, &started), ONEHOP_OK) << onehop_last_error();
  const ServerPtr server(started);
  EXPECT_NE(onehop_tcp_server_port(server.get()), 0);
}

TEST(CApiOptions, FieldsOfANewerCallerMustBeZero) {
  struct {
    onehop_tcp_options_t known;
    std::int64_t novel;
  } newer{};
  onehop_tcp_options_init(&newer.known, sizeof newer);
  onehop_tcp_server_t* started = nullptr;
  EXPECT_EQ(onehop_tcp_server_start(&newer.known, &started), ONEHOP_OK) << onehop_last_error();
  const ServerPtr server(started);
  newer.novel = 1;
  started = nullptr;
  EXPECT_EQ(onehop_tcp_server_start(&newer.known, &started), ONEHOP_ERROR_UNSUPPORTED);
  EXPECT_EQ(started, nullptr);
}

/// A store in C style: functions over a context.
struct MapStore {
  std::map<std::string, std::string> values;
  int destroyed = 0;
  onehop_status_t answer = ONEHOP_OK;  ///< what `set` returns
  bool reply = true;                   ///< whether get replies

  static MapStore& of(void* context) { return *static_cast<MapStore*>(context); }

  static onehop_store_callbacks_t table(MapStore& self) {
    onehop_store_callbacks_t out;
    onehop_store_callbacks_init(&out, sizeof out);
    out.context = &self;
    out.set = [](void* context, const char* key, const void* value, std::size_t bytes,
                 std::int64_t /*timeout_ms*/) {
      of(context).values[key] = std::string(static_cast<const char*>(value), bytes);
      return of(context).answer;
    };
    out.get = [](void* context, const char* key, std::int64_t /*timeout_ms*/, onehop_reply_t* value) {
      const auto found = of(context).values.find(key);
      if (found == of(context).values.end()) return static_cast<onehop_status_t>(ONEHOP_ERROR_TIMEOUT);
      if (!of(context).reply) return static_cast<onehop_status_t>(ONEHOP_OK);
      return onehop_reply_set(value, found->second.data(), found->second.size());
    };
    out.add = [](void* context, const char* key, std::int64_t delta, std::int64_t /*timeout_ms*/,
                 std::int64_t* result) {
      std::string& value = of(context).values[key];
      *result = (value.empty() ? 0 : std::stoll(value)) + delta;
      value = std::to_string(*result);
      return static_cast<onehop_status_t>(ONEHOP_OK);
    };
    out.compare_set = [](void* context, const char* key, const void* expected, std::size_t expected_bytes,
                         const void* desired, std::size_t desired_bytes, std::int64_t /*timeout_ms*/,
                         onehop_reply_t* value) {
      std::string& slot = of(context).values[key];
      if (slot == std::string_view(static_cast<const char*>(expected), expected_bytes)) {
        slot.assign(static_cast<const char*>(desired), desired_bytes);
      }
      return onehop_reply_set(value, slot.data(), slot.size());
    };
    out.delete_key = [](void* context, const char* key, std::int64_t /*timeout_ms*/, int* existed) {
      *existed = static_cast<int>(of(context).values.erase(key));
      return static_cast<onehop_status_t>(ONEHOP_OK);
    };
    out.destroy = [](void* context) { ++of(context).destroyed; };
    return out;
  }
};

TEST(CApiCallbacks, AStoreOfCallbacksRoundTripsAndIsDestroyedOnce) {
  MapStore map;
  const onehop_store_callbacks_t table = MapStore::table(map);
  onehop_store_t* made = nullptr;
  ASSERT_EQ(onehop_store_callbacks(&table, &made), ONEHOP_OK) << onehop_last_error();
  expect_round_trip(made);
  onehop_store_t* prefixed = nullptr;
  ASSERT_EQ(onehop_store_prefix(made, "p", &prefixed), ONEHOP_OK);
  onehop_store_destroy(made);
  EXPECT_EQ(map.destroyed, 0) << "the prefix store still uses it";
  onehop_store_destroy(prefixed);
  EXPECT_EQ(map.destroyed, 1);
}

TEST(CApiCallbacks, AnErrorOfACallbackReachesTheCallerWithCallAndKey) {
  MapStore map;
  const onehop_store_callbacks_t table = MapStore::table(map);
  onehop_store_t* made = nullptr;
  ASSERT_EQ(onehop_store_callbacks(&table, &made), ONEHOP_OK);
  const StorePtr store(made);
  map.answer = ONEHOP_ERROR_OUT_OF_RESOURCES;
  EXPECT_EQ(onehop_store_set(store.get(), "key", "v", 1, ONEHOP_TIMEOUT_DEFAULT),
            ONEHOP_ERROR_OUT_OF_RESOURCES);
  EXPECT_THAT(onehop_last_error(), HasSubstr("set of key 'key'"));
  map.answer = 4711;
  EXPECT_EQ(onehop_store_set(store.get(), "key", "v", 1, ONEHOP_TIMEOUT_DEFAULT), ONEHOP_ERROR_SYSTEM);
  EXPECT_THAT(onehop_last_error(), HasSubstr("4711"));
  map.reply = false;
  char* value = nullptr;
  std::size_t bytes = 0;
  EXPECT_EQ(onehop_store_get(store.get(), "key", 0, &value, &bytes), ONEHOP_ERROR_PROTOCOL);
  EXPECT_THAT(onehop_last_error(), HasSubstr("onehop_reply_set"));
}

TEST(CApiCallbacks, AnIncompleteTableIsRefusedAndItsContextDestroyed) {
  MapStore map;
  onehop_store_callbacks_t table = MapStore::table(map);
  table.compare_set = nullptr;
  onehop_store_t* made = nullptr;
  EXPECT_EQ(onehop_store_callbacks(&table, &made), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("compare_set"));
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(map.destroyed, 1);
}

TEST(CApiCallbacks, WithoutASlotForTheStoreItsContextIsDestroyedToo) {
  MapStore map;
  const onehop_store_callbacks_t table = MapStore::table(map);
  EXPECT_EQ(onehop_store_callbacks(&table, nullptr), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("store must not be NULL"));
  EXPECT_EQ(map.destroyed, 1);
}

TEST(CApiCallbacks, AReplyThatNoStoreHoldsIsRefusedUnread) {
  MapStore map;
  onehop_store_callbacks_t table = MapStore::table(map);
  table.get = [](void*, const char*, std::int64_t, onehop_reply_t* value) {
    return onehop_reply_set(value, "short", SIZE_MAX);
  };
  onehop_store_t* store = nullptr;
  ASSERT_EQ(onehop_store_callbacks(&table, &store), ONEHOP_OK);
  char* value = nullptr;
  std::size_t bytes = 0;
  EXPECT_EQ(onehop_store_get(store, "key", 0, &value, &bytes), ONEHOP_ERROR_INVALID_ARGUMENT);
  onehop_store_destroy(store);
}

TEST(CApiOptions, OfAnAbsurdSizeAreNotWrittenAndRefusedLater) {
  onehop_tcp_options_t options[2];
  std::memset(options, 0x55, sizeof options);
  const onehop_tcp_options_t untouched = options[1];
  onehop_tcp_options_init(options, SIZE_MAX);
  EXPECT_EQ(std::memcmp(options + 1, &untouched, sizeof untouched), 0);
  onehop_tcp_server_t* server = nullptr;
  EXPECT_EQ(onehop_tcp_server_start(options, &server), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("_init"));
}

TEST(CApi, NamesThisMachineAsGroupsDo) {
  char* id = nullptr;
  ASSERT_EQ(onehop_host_id(&id), ONEHOP_OK) << onehop_last_error();
  EXPECT_EQ(id, host_id());
  onehop_free(id);
}

TEST(CApiTopology, ProbesThisMachineAsJson) {
  char* json = nullptr;
  ASSERT_EQ(onehop_topology_probe_json(&json), ONEHOP_OK) << onehop_last_error();
  EXPECT_EQ(json[0], '{');
  EXPECT_THAT(json, HasSubstr("\"host\""));
  onehop_free(json);
}

}  // namespace
}  // namespace onehop
