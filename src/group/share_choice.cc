// SPDX-License-Identifier: Apache-2.0
#include "group/share_choice.h"

#include <fmt/core.h>

#include <algorithm>

namespace onehop {

ShareChoice choose_share(const std::vector<Hello>& hellos) {
  const auto unable = [&](ShareBy kind) {
    return std::find_if(hellos.begin(), hellos.end(), [&](const Hello& hello) {
      return !hello.share_methods.has(kind) ||
             (kind == ShareBy::fabric && hello.share_methods.fabric != hellos.front().share_methods.fabric);
    });
  };
  const Hello* asker = nullptr;
  for (const Hello& hello : hellos) {
    if (hello.share_by == ShareBy::automatic) continue;
    if (asker == nullptr) asker = &hello;
    if (hello.share_by == asker->share_by) continue;
    return {.refusal = fmt::format(
                "ranks {} and {} differ in how memory is shared: '{}' and '{}'; set ONEHOP_SHARE (or "
                "JoinOptions::share_by) to one of them, or leave it to 'auto'",
                asker->rank, hello.rank, to_string(asker->share_by), to_string(hello.share_by))};
  }
  if (asker != nullptr) {
    const auto first = unable(asker->share_by);
    if (first == hellos.end()) return {.share_by = asker->share_by};
    return {
        .refusal = fmt::format(
            "rank {} asks for memory shared by '{}', which does not work on rank {}{} ('onehop doctor' says "
            "more); leave it to ONEHOP_SHARE=auto",
            asker->rank, to_string(asker->share_by), first->rank,
            first->share_methods.has(asker->share_by) ? ", in another fabric clique than rank 0" : "")};
  }
  std::string missing;
  for (const ShareBy kind : {ShareBy::fabric, ShareBy::posix_fd, ShareBy::ipc}) {
    const auto first = unable(kind);
    if (first == hellos.end()) return {.share_by = kind};
    missing += fmt::format("{}'{}' on rank {}", missing.empty() ? "" : ", ", to_string(kind), first->rank);
  }
  return {.refusal = "no way to share memory works on all ranks; missing: " + missing +
                     " ('onehop doctor' says why)"};
}

}  // namespace onehop
