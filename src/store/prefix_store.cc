// SPDX-License-Identifier: Apache-2.0
#include "onehop/store.h"

#include "base/check.h"
#include "store/rules.h"

namespace onehop {
namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {
    require(store_ != nullptr, "prefix_store needs a store, got null");
    store::check_key(full(""));
  }

  std::string describe() const override {
    return store_->describe() + " under " + store::quoted(prefix_ + "/");
  }

 private:
  void do_set(std::string_view key, std::string_view value, Duration timeout) override {
    store_->set(full(key), value, timeout);
  }
  std::optional<std::string> do_get_for(std::string_view key, Duration timeout) override {
    return store_->get_for(full(key), timeout);
  }
  std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) override {
    return store_->add(full(key), delta, timeout);
  }
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Duration timeout) override {
    return store_->compare_set(full(key), expected, desired, timeout);
  }
  bool do_delete_key(std::string_view key, Duration timeout) override {
    return store_->delete_key(full(key), timeout);
  }

  std::string full(std::string_view key) const {
    std::string out = prefix_ + "/";
    out += key;
    return out;
  }

  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store, std::string prefix) {
  return std::make_shared<PrefixStore>(std::move(store), std::move(prefix));
}

}  // namespace onehop
