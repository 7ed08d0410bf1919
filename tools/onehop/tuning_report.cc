// SPDX-License-Identifier: Apache-2.0
#include "tuning_report.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/units.h"
#include "bench/winners.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr std::size_t kColumns = 6;
using Cells = std::array<std::string, kColumns>;
constexpr std::size_t kUpTo = 3;  ///< the column that is aligned to the right

/// "64K", "<64M" for one byte less, or "max".
std::string limit_text(std::uint64_t up_to) {
  if (up_to == kNoLimit) return "max";
  const std::string exact = format_size(up_to);
  const std::string next = format_size(up_to + 1);
  return next.size() < exact.size() ? "<" + next : exact;
}

/// Whether some call uses the row. The largest call of a row that rows for more special calls do not match is
/// the last one to be taken by other rows.
bool is_reached(const Tuning& table, const TuningRow& row) {
  return table.find({.collective = row.collective,
                     .backend = row.backend,
                     .ranks = row.ranks,
                     .type = row.types == TypeClass::floats ? DType::bf16 : DType::i32,
                     .buffers = row.buffers,
                     .bytes = row.up_to}) == &row;
}

const char* origin_of(const TuningRow& row, bool from_file) {
  return from_file ? "file" : row.derived ? "derived" : "measured";
}

Cells cells_of(const TuningRow& row, bool from_file) {
  return {std::string(to_string(row.collective)),
          std::string(to_string(row.types)),
          std::string(to_string(row.buffers)),
          limit_text(row.up_to),
          origin_of(row, from_file),
          describe(row.choice)};
}

/// "  file: types float, buffers any, up to 64K: ll_one_shot".
std::string line_of(const TuningRow& row, bool from_file) {
  return fmt::format("  {}{}: types {}, buffers {}, up to {}: {}", from_file ? "" : "library, ",
                     origin_of(row, from_file), to_string(row.types), to_string(row.buffers),
                     limit_text(row.up_to), describe(row.choice));
}

/// Why a row of the same collective does not match; empty if it does.
std::string mismatch(const TuningRow& row, const TuningQuery& query) {
  std::string why;
  const auto add = [&](bool differs, const std::string& reason) {
    if (differs) why += (why.empty() ? "" : "; ") + reason;
  };
  add(row.types != TypeClass::any && row.types != type_class(query.type),
      fmt::format("{} is not a floating-point type", to_string(query.type)));
  add(row.buffers != onehop::Buffers::any && row.buffers != query.buffers,
      "the output is not declared symmetric");
  add(query.bytes > row.up_to, fmt::format("{} is too long", format_size(query.bytes)));
  return why;
}

/// Looks for the row that matches, and collects the lines of those before it.
const TuningRow* search(const std::vector<TuningRow>& rows, bool from_file, const TuningQuery& query,
                        std::string& passed) {
  for (const TuningRow& row : rows) {
    if (row.collective != query.collective) continue;
    const std::string why = mismatch(row, query);
    if (why.empty()) return &row;
    passed += fmt::format("{}; {}\n", line_of(row, from_file), why);
  }
  return nullptr;
}

}  // namespace

std::string describe(const GroupKind& kind) {
  if (kind.backend == Backend::host) return fmt::format("{} host ranks", kind.ranks);
  return fmt::format("{} GPUs with {}", kind.ranks, kind.links == Links::nvlink ? "NVLink" : "PCIe");
}

GroupTable group_table(const GroupKind& kind, const std::string& file, const Tuning& file_table,
                       const Tuning& own, const std::vector<onehop::Collective>& collectives) {
  const auto is_kept = [&](const TuningRow& row) {
    return collectives.empty() || std::ranges::count(collectives, row.collective) != 0;
  };
  GroupTable table{.kind = kind, .file = file, .device = file_table.device, .file_rows = {}, .own_rows = {}};
  Tuning chosen;  // the rows that choose an algorithm
  for (const TuningRow& row : file_table.rows) {
    if (row.backend != kind.backend || row.ranks != kind.ranks) {
      ++table.other_rows;
    } else if (is_kept(row)) {
      table.file_rows.push_back(row);
      if (row.choice) chosen.rows.push_back(row);
    }
  }
  const std::size_t of_file = chosen.rows.size();
  std::ranges::copy_if(own.rows, std::back_inserter(chosen.rows), is_kept);
  for (std::size_t i = of_file; i < chosen.rows.size(); ++i) {
    const TuningRow& row = chosen.rows[i];
    const bool left_to_library = std::ranges::any_of(table.file_rows, [&](const TuningRow& each) {
      return !each.choice && each.collective == row.collective;
    });
    if (left_to_library || is_reached(chosen, row)) table.own_rows.push_back(row);
  }
  return table;
}

std::string to_text(const GroupTable& table) {
  std::vector<Cells> lines{{"collective", "types", "buffers", "up to", "from", "algorithm"}};
  for (const TuningRow& row : table.file_rows) lines.push_back(cells_of(row, /*from_file=*/true));
  for (const TuningRow& row : table.own_rows) lines.push_back(cells_of(row, /*from_file=*/false));
  std::array<std::size_t, kColumns> widths{};
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  const std::string source = table.file.empty()
                                 ? "the library's own table"
                                 : fmt::format("'{}', then the library's own table", table.file);
  std::string out = wrapped(fmt::format("{}: {}", describe(table.kind), source), "# ");
  if (table.other_rows != 0) {
    out += wrapped(fmt::format("the file has {} more row{} for other groups", table.other_rows,
                               table.other_rows == 1 ? "" : "s"),
                   "# ");
  }
  for (const Cells& line : lines) {
    std::string text;
    for (std::size_t i = 0; i + 1 < kColumns; ++i) {
      text += i == kUpTo ? fmt::format("{:>{}}  ", line[i], widths[i])
                         : fmt::format("{:<{}}  ", line[i], widths[i]);
    }
    out += text + line.back() + "\n";
  }
  return out;
}

Tuning to_tuning(const GroupTable& table) {
  Tuning all{.device = table.device, .rows = table.file_rows};
  all.rows.insert(all.rows.end(), table.own_rows.begin(), table.own_rows.end());
  Tuning reached{.device = table.device, .rows = {}};
  std::ranges::copy_if(all.rows, std::back_inserter(reached.rows),
                       [&](const TuningRow& row) { return is_reached(all, row); });
  return reached;
}

std::string explain(const GroupTable& table, const TuningQuery& query) {
  const std::string call = fmt::format("{} of {} of {} on {}", to_string(query.collective),
                                       format_size(query.bytes), to_string(query.type), describe(table.kind));
  std::string passed;
  std::string used;
  const TuningRow* row = search(table.file_rows, /*from_file=*/true, query, passed);
  const bool in_file = row != nullptr && row->choice;
  if (row != nullptr) used = line_of(*row, /*from_file=*/true) + "\n";
  if (!in_file) {
    row = search(table.own_rows, /*from_file=*/false, query, passed);
    if (row == nullptr) return fmt::format("{}: there is no choice of algorithms\n", call);
    used += line_of(*row, /*from_file=*/false) + "\n";
  }
  std::string out = fmt::format("{}: {}\nThe call uses this row:\n{}", call, describe(row->choice), used);
  if (!passed.empty()) out += "These rows come first but do not match:\n" + passed;
  return out;
}

}  // namespace onehop::cli
