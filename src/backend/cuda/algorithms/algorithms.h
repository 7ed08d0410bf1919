// SPDX-License-Identifier: Apache-2.0
// All algorithms of GPUs. table.cc lists them and says when each is chosen.
#pragma once

#include "backend/cuda/algorithm.h"

namespace onehop::cuda {

extern const DeviceAlgorithm kLLOneShot;
extern const DeviceAlgorithm kLamportOneShot;
extern const DeviceAlgorithm kLamportTwoShotByPeer;
extern const DeviceAlgorithm kLamportTwoShot;
extern const DeviceAlgorithm kStreamingOneShot;
extern const DeviceAlgorithm kStreamingTwoShot;
extern const DeviceAlgorithm kCopyEngineTwoShot;
extern const DeviceAlgorithm kPointToPoint;
extern const DeviceAlgorithm kScatterAllGather;
extern const DeviceAlgorithm kCopyEngine;
extern const DeviceAlgorithm kReduceFromPeers;
extern const DeviceAlgorithm kAlone;

}  // namespace onehop::cuda
