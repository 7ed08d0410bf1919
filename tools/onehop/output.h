// SPDX-License-Identifier: Apache-2.0
// Where reports go: a file, "-" for standard output, or nowhere (no path).
#pragma once

#include <string>

namespace onehop::cli {

/// What options that take such a path are called in --help.
inline constexpr const char* kOutputType = "FILE|-";

[[nodiscard]] inline bool is_stdout(const std::string& path) {
  return path == "-";
}

/// What is wrong with such a path as an option's value, as CLI11's validators say it; "": nothing.
[[nodiscard]] std::string complaint_about_output(const std::string& path);

/// Whether what is written to one would end up where the other is: the same file, or both standard output.
[[nodiscard]] bool same_place(const std::string& one, const std::string& other);
/// UsageError when two documents would go to one place.
void refuse_same_place(const char* option, const std::string& path, const char* other_option,
                       const std::string& other_path);

/// Error{system} when standard output does not take it.
void print(const std::string& text);
/// Before anything runs: a result that cannot be kept should not cost minutes first. What is in the file
/// stays until there is something to put in its place.
void check_writable(const std::string& path);
void write_output(const std::string& path, const std::string& text);

/// A document that grows while a command runs, and that is whole whenever it ends: a file is replaced by
/// every new version of it; standard output gets the last version, also when SIGINT, SIGTERM or SIGHUP ends
/// the process, or an exception this scope. At most one of them in a process is for standard output.
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
  bool replaceable_ = false;  ///< a plain file, in a directory that takes another one
};

}  // namespace onehop::cli
