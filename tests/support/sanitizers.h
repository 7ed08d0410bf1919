// SPDX-License-Identifier: Apache-2.0
// Whether this build runs an order of magnitude slower than a release build, so that tests do less.
#pragma once

namespace onehop::testing {

#if defined(__has_feature)
#define ONEHOP_HAS_FEATURE(name) __has_feature(name)
#else
#define ONEHOP_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || ONEHOP_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || ONEHOP_HAS_FEATURE(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitized;
#endif
#undef ONEHOP_HAS_FEATURE

}  // namespace onehop::testing
