// SPDX-License-Identifier: Apache-2.0
// Measures the choices of collectives and makes a tuning table of the fastest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/group.h"
#include "onehop/job.h"
#include "onehop/tuning.h"

#include "bench/other_programs.h"
#include "bench/tune_plan.h"
#include "bench/watchdog.h"
#include "bench/winners.h"
#include "os/private_dir.h"

namespace onehop::cli {

/// One rank of the run. All ranks see the same figures, so they make the same decisions.
class Tuner {
 public:
  Tuner(const TuneOptions& options, JoinOptions join, const JobInfo& job, Watchdog* watchdog);
  [[nodiscard]] Tuning run();

 private:
  /// Measures the calls of such a row with every choice.
  Figures measure(const TuningRow& like, const std::vector<DType>& members);
  /// Measures the finalists of each size again, in turns. Sizes that are decided keep their figures.
  Figures measure_again(const TuningRow& like, const std::vector<DType>& members, const Figures& first);
  /// A group whose calls of such a row make this choice.
  [[nodiscard]] Group join_with(const TuningRow& like, const Choice& choice);
  /// us per call, the mean of the types. `bytes`: of a block.
  double measure(Group& group, const TuningRow& like, const std::vector<DType>& members, std::uint64_t bytes);
  double measure(Group& group, const TuningRow& like, DType type, std::uint64_t bytes, bool check);
  void progress(std::string_view what);
  void clear_progress() const;
  /// Shows the figures of a choice as soon as it is measured, so that an interrupted run has shown them.
  void show(const TuningRow& like, const Figures& figures, std::size_t choice) const;
  void show(const TuningRow& like, const std::vector<DType>& members, const Figures& figures,
            const std::vector<Winner>& winners) const;

  const TuneOptions& options_;
  JoinOptions join_;
  const bool leads_;
  const bool terminal_;
  Watchdog* const watchdog_;
  std::optional<os::PrivateDir> scratch_;  ///< on rank 0, for the table of the choice that is measured
  std::string device_;
  const OtherPrograms others_;
  const double used_before_ = thread_seconds();
  double used_by_all_ = 0;  ///< seconds of processors, since then
  std::string doing_;
};

}  // namespace onehop::cli
