// SPDX-License-Identifier: Apache-2.0
#include "onehop/store.h"

#include "base/check.h"

namespace onehop {
namespace {

class CallbackStore final : public Store {
 public:
  explicit CallbackStore(StoreCallbacks callbacks) : call_(std::move(callbacks)) {
    require(call_.set && call_.get_for && call_.add && call_.compare_set && call_.delete_key,
            "callback_store needs all of set, get_for, add, compare_set and delete_key");
  }

  std::string describe() const override { return call_.description; }

 private:
  void do_set(std::string_view key, std::string_view value, Duration timeout) override {
    guarded("set", [&] { call_.set(key, value, timeout); });
  }
  std::optional<std::string> do_get_for(std::string_view key, Duration timeout) override {
    return guarded("get_for", [&] { return call_.get_for(key, timeout); });
  }
  std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) override {
    return guarded("add", [&] { return call_.add(key, delta, timeout); });
  }
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Duration timeout) override {
    return guarded("compare_set", [&] { return call_.compare_set(key, expected, desired, timeout); });
  }
  bool do_delete_key(std::string_view key, Duration timeout) override {
    return guarded("delete_key", [&] { return call_.delete_key(key, timeout); });
  }

  /// A callback may throw any exception; callers of a Store see only Error.
  template <class F>
  std::invoke_result_t<F> guarded(std::string_view what, F&& callback) {
    try {
      return callback();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(ErrorCode::system, "{}: {} threw: {}", call_.description, what, error.what());
    } catch (...) {
      fail(ErrorCode::system, "{}: {} threw something that is not a std::exception", call_.description, what);
    }
  }

  StoreCallbacks call_;
};

}  // namespace

std::shared_ptr<Store> callback_store(StoreCallbacks callbacks) {
  return std::make_shared<CallbackStore>(std::move(callbacks));
}

}  // namespace onehop
