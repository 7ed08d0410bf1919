// SPDX-License-Identifier: Apache-2.0
// Includes all public headers of the C++ API.
#pragma once

#include "onehop/buffer.h"
#include "onehop/collectives.h"
#include "onehop/device_memory.h"
#include "onehop/diagnose.h"
#include "onehop/error.h"
#include "onehop/group.h"
#include "onehop/group_call.h"
#include "onehop/interrupt.h"
#include "onehop/intra_node_comm.h"
#include "onehop/ipc.h"
#include "onehop/job.h"
#include "onehop/peer_access.h"
#include "onehop/peer_check.h"
#include "onehop/pool.h"
#include "onehop/spans.h"
#include "onehop/store.h"
#include "onehop/topology.h"
#include "onehop/tuning.h"
#include "onehop/types.h"
#include "onehop/version.h"
