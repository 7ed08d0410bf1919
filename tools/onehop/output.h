// SPDX-License-Identifier: Apache-2.0
// Output of reports: to a file, to standard output ("-"), or to nowhere (no path); text for terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onehop::cli {

inline constexpr std::size_t kTerminalColumns = 80;

/// `text` in lines that begin with `indent` and have at most `columns` letters, each ended by a newline.
/// Longer words stay whole.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view indent,
                                  std::size_t columns = kTerminalColumns);

/// A help with the lines wrapped that are longer than `columns`: a paragraph that is not indented as a whole, other lines
/// at their indent, and in their second column if two spaces or more separate one.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t columns);

/// The width of the terminal that standard output is; no limit if it is none.
[[nodiscard]] std::size_t columns_of_stdout();

enum class Color { green, red };
/// Whether verdicts are colored: standard output is a terminal, TERM is not "dumb", and NO_COLOR is unset or empty.
[[nodiscard]] bool use_colors();
/// `text` in that color if `colors`.
[[nodiscard]] std::string colored(std::string_view text, Color color, bool colors);

[[nodiscard]] inline bool is_stdout(const std::string& path) {
  return path == "-";
}

/// Whether both paths name the same file, or both standard output.
[[nodiscard]] bool same_destination(const std::string& one, const std::string& other);
/// UsageError when two documents have the same destination.
void refuse_same_destination(const char* option, const std::string& path, const char* other_option,
                             const std::string& other_path);

/// The content of a file or a pipe. An Error that names it when it is something else, too long, or cannot be read.
[[nodiscard]] std::string read_input(const std::string& path);
/// Error{system} when standard output cannot be written.
void print(const std::string& text);
/// To standard error. What cannot be written there (a log on a full disk) is lost, and the command goes on.
void print_error(const std::string& text);
/// Called before the work, so that an unwritable path costs no minutes. Keeps the content of the file,
/// and makes none.
void check_writable(const std::string& path);
/// A file that was there keeps its content when the new one cannot be written, where its directory can be written.
/// Called before text is printed: standard output may be closed (`| head`), and the file is still wanted.
void write_output(const std::string& path, const std::string& text);

/// A document that grows while a command runs, and is valid whenever the command ends. Every version replaces
/// the file. Standard output gets the last version at the end, also when SIGINT, SIGTERM or SIGHUP ends the
/// process or an exception leaves the scope. A process has at most one LiveDocument for standard output.
class LiveDocument {
 public:
  explicit LiveDocument(std::string path);
  ~LiveDocument();
  LiveDocument(const LiveDocument&) = delete;
  LiveDocument& operator=(const LiveDocument&) = delete;

  void update(const std::string& text);
  void finish(const std::string& text);

 private:
  const std::string path_;
  bool replaceable_ = false;  ///< a regular file in a writable directory
};

}  // namespace onehop::cli
