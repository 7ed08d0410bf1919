// SPDX-License-Identifier: Apache-2.0
// Reads and writes JSON that may be edited by hand: every error is one line that names the field and the value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace onehop {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t bytes = 0;
  int depth = 0;  ///< nesting depth of arrays and objects
};

/// Parses `text`. Throws Error{protocol}, which names `source` and, for text that is not JSON, line and
/// column.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits);

/// Formats a document as indented text that ends with a newline. Lists of numbers, rows of matrices and short
/// objects take one line.
[[nodiscard]] std::string write_json(const Json& document);

/// A JSON value together with its path in the document, so that every error names its field.
class JsonField {
 public:
  JsonField(const Json& value, std::string path, std::string_view source)
      : value_(&value), path_(std::move(path)), source_(source) {}

  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::protocol, "{}: {}: {}", source_, path_.empty() ? "top level" : path_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  /// A member of this object. The required form throws if it is missing.
  [[nodiscard]] std::optional<JsonField> find(const char* key) const {
    if (!value_->is_object()) wrong("must be an object, got {}", describe());
    const auto it = value_->find(key);
    if (it == value_->end()) return std::nullopt;
    return JsonField(*it, path_.empty() ? key : fmt::format("{}.{}", path_, key), source_);
  }
  [[nodiscard]] JsonField at(const char* key) const {
    std::optional<JsonField> field = find(key);
    if (!field) wrong("the field '{}' is missing", key);
    return *std::move(field);
  }

  /// Throws if this object has a member that is not among `names`.
  void only(std::initializer_list<std::string_view> names) const;

  /// Calls `visit(JsonField element, std::size_t index)` for each element of this array.
  template <class Visit>
  void each(std::size_t limit, Visit&& visit) const {
    const std::size_t count = length();
    if (count > limit) wrong("has {} elements, more than the limit of {}", count, limit);
    for (std::size_t i = 0; i < count; ++i)
      visit(JsonField((*value_)[i], fmt::format("{}[{}]", path_, i), source_), i);
  }
  [[nodiscard]] std::size_t length() const {
    if (!value_->is_array()) wrong("must be an array, got {}", describe());
    return value_->size();
  }

  [[nodiscard]] std::int64_t integer(std::int64_t lowest, std::int64_t highest) const;
  [[nodiscard]] int small(std::int64_t lowest, std::int64_t highest) const {
    return static_cast<int>(integer(lowest, highest));
  }
  [[nodiscard]] std::uint64_t bytes() const {
    if (!value_->is_number_unsigned()) wrong("must be a number of bytes, got {}", describe());
    return value_->get<std::uint64_t>();
  }
  [[nodiscard]] double number() const {
    if (!value_->is_number()) wrong("must be a number, got {}", describe());
    return value_->get<double>();
  }
  [[nodiscard]] bool flag() const {
    if (!value_->is_boolean()) wrong("must be true or false, got {}", describe());
    return value_->get<bool>();
  }
  [[nodiscard]] bool is_text() const { return value_->is_string(); }
  /// Whether the value is exactly this text.
  [[nodiscard]] bool is(std::string_view word) const {
    return is_text() && value_->get_ref<const std::string&>() == word;
  }
  /// Printable text: control characters would let a file write escape sequences to a terminal.
  [[nodiscard]] std::string text(std::size_t limit = 256) const;
  /// One of the names of `values`, an array or a vector.
  template <class Values>
  [[nodiscard]] typename Values::value_type one_of(const Values& values) const {
    std::string known;
    for (const auto value : values) {
      if (is(to_string(value))) return value;
      known += fmt::format("{}{}", known.empty() ? "" : " ", to_string(value));
    }
    wrong("must be one of {}, got {}", known, describe());
  }

  /// The value, shortened to one line. Only scalars are shown.
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] static std::string show(const Json& scalar);

  const Json* value_;
  std::string path_;
  std::string_view source_;
};

}  // namespace onehop
