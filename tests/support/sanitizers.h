// SPDX-License-Identifier: Apache-2.0
// Whether this build has sanitizers: it then runs an order of magnitude slower than a release build, so that tests do less.
#pragma once

// GCC says it by a macro, Clang by a feature.
#if defined(__has_feature)
#define ONEHOP_HAS_FEATURE(name) __has_feature(name)
#else
#define ONEHOP_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || ONEHOP_HAS_FEATURE(thread_sanitizer)
#define ONEHOP_THREAD_SANITIZED 1
#else
#define ONEHOP_THREAD_SANITIZED 0
#endif
#if defined(__SANITIZE_ADDRESS__) || ONEHOP_HAS_FEATURE(address_sanitizer)
#define ONEHOP_ADDRESS_SANITIZED 1
#else
#define ONEHOP_ADDRESS_SANITIZED 0
#endif
#undef ONEHOP_HAS_FEATURE

namespace onehop::testing {

inline constexpr bool kThreadSanitized = ONEHOP_THREAD_SANITIZED != 0;
inline constexpr bool kAddressSanitized = ONEHOP_ADDRESS_SANITIZED != 0;
inline constexpr bool kSanitized = kThreadSanitized || kAddressSanitized;

}  // namespace onehop::testing
