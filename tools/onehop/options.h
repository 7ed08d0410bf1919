// SPDX-License-Identifier: Apache-2.0
// Typed options. What an option refuses is a usage error of one line that names option, value and remedy.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onehop/error.h"

#include "names.h"

namespace onehop::cli {

/// The type of options that take a file or standard output, in --help.
inline constexpr const char* kOutputType = "FILE|-";

/// What the completions of shells offer after an option.
struct Choices {
  std::vector<std::vector<std::string>> of_values;  ///< of each value that the option takes; empty: any
  bool list = false;                                ///< the value is a list of them, separated by commas
};

/// Notes the values of an option. Options live as long as the command.
CLI::Option* with_choices(CLI::Option* option, Choices choices);
CLI::Option* with_choices(CLI::Option* option, std::vector<std::string> choices);
/// Notes the words of the lists that an option takes.
CLI::Option* with_choices_of_list(CLI::Option* option, std::vector<std::string> choices);
/// Those noted; of other options none.
[[nodiscard]] const Choices& choices_of(const CLI::Option& option);

/// The words of "sum min max".
[[nodiscard]] std::vector<std::string> words_of(std::string_view text);

template <class T, std::size_t N>
[[nodiscard]] std::vector<std::string> choices_in(const Named<T> (&names)[N]) {
  std::vector<std::string> choices;
  for (const Named<T>& each : names) choices.emplace_back(each.name);
  return choices;
}

/// Accepts the values for which `parse` throws no Error.
template <class Parse>
[[nodiscard]] CLI::Validator accepted_by(Parse parse) {
  return CLI::Validator(
      [parse = std::move(parse)](const std::string& text) -> std::string {
        try {
          (void)parse(text);
          return {};
        } catch (const Error& error) {
          return error.message();
        }
      },
      "");
}

/// Adds an option whose value is `parse(text)`. An Error of `parse` becomes a usage error.
template <class T, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& names, T& value, Parse parse,
                        const std::string& description) {
  const CLI::callback_t assign = [&value, parse = std::move(parse),
                                  name = names.substr(names.rfind(',') + 1)](const CLI::results_t& results) {
    try {
      value = parse(results.back());
    } catch (const Error& error) {
      throw CLI::ValidationError(name, error.message());
    }
    return true;
  };
  return app.add_option(names, assign, description);
}

/// Adds an option whose value is one of `names`. The initial value is the default that --help shows.
template <class T, std::size_t N>
CLI::Option* add_named(CLI::App& app, const std::string& option, T& value, const Named<T> (&names)[N],
                       const std::string& description) {
  CLI::Option* const added = add_parsed(
      app, option, value, [&names](const std::string& text) { return parse_name(names, text); }, description);
  return with_choices(added, choices_in(names))->default_str(std::string(name_of(names, value)));
}

/// CLI::Range, which --help does not show.
[[nodiscard]] CLI::Validator in_range(int lowest, int highest);
/// Adds an option whose value is a number within the range.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& option, T& value, int lowest, int highest,
                        const std::string& description) {
  return app.add_option(option, value, description)->type_name("N")->check(in_range(lowest, highest));
}
/// The same for -n. "-np 4", as mpirun has it, is -n with the value "p", and is answered with the right option.
[[nodiscard]] CLI::Validator number_of_ranks(int lowest, int highest);
/// A finite number within the range. CLI::Range accepts NaN.
[[nodiscard]] CLI::Validator finite(double lowest, double highest, const std::string& what);
/// The number of a device. CLI11 converts an empty item to 0.
[[nodiscard]] CLI::Validator device_number();
/// A file name or "-".
[[nodiscard]] CLI::Validator output_path();
/// The name of a folder. An empty one is a variable of the shell that is not set.
[[nodiscard]] CLI::Validator folder_name();

}  // namespace onehop::cli
