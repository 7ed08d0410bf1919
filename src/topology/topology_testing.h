// What the tests of this layer share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "onehop/topology.h"

namespace onehop {

inline std::string shipped_path(const std::string& name) {
  return std::string(ONEHOP_TEST_TOPOLOGIES "/") + name;
}

/// One of tests/data/topology, by its name without ".json".
inline Topology shipped(const std::string& name) {
  return Topology::load(shipped_path(name + ".json"));
}

inline constexpr const char* kShipped[] = {"h100x8",           "h200x4",      "pcie4",
                                           "hybrid_cube_mesh", "two_islands", "host_only"};

inline DeviceInfo device_named(std::string uuid, std::string name = {}) {
  DeviceInfo device;
  device.uuid = std::move(uuid);
  device.name = std::move(name);
  return device;
}

/// The message of the error that `f` throws; a missing error, another code or more than one line fails the
/// test.
template <class F>
std::string message_of(F&& f, ErrorCode expected) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), expected) << e.what();
    EXPECT_EQ(e.message().find('\n'), std::string::npos) << e.what();
    return e.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace onehop
