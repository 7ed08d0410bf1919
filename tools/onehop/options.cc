// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/units.h"

namespace onehop::cli {

namespace {

std::map<const CLI::Option*, Choices>& all_choices() {
  static std::map<const CLI::Option*, Choices> choices;
  return choices;
}

}  // namespace

CLI::Option* with_choices(CLI::Option* option, Choices choices) {
  all_choices()[option] = std::move(choices);
  return option;
}

CLI::Option* with_choices(CLI::Option* option, std::vector<std::string> choices) {
  return with_choices(option, Choices{.of_values = {std::move(choices)}});
}

CLI::Option* with_choices_of_list(CLI::Option* option, std::vector<std::string> choices) {
  return with_choices(option, Choices{.of_values = {std::move(choices)}, .list = true});
}

const Choices& choices_of(const CLI::Option& option) {
  return all_choices()[&option];
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ' ')) words.emplace_back(word);
  return words;
}

CLI::Validator in_range(int lowest, int highest) {
  return CLI::Range(lowest, highest).description("");
}

CLI::Validator number_of_ranks(int lowest, int highest) {
  return accepted_by([range = CLI::Range(lowest, highest)](const std::string& text) {
    require(text != "p", "what mpirun calls -np is -n N");
    const std::string wrong = range(text);
    require(wrong.empty(), "{}", wrong);
  });
}

CLI::Validator finite(double lowest, double highest, const std::string& what) {
  return accepted_by([=](const std::string& text) {
    double value = 0;
    const bool good =
        CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= lowest && value <= highest;
    require(good, "'{}' is not {}", text, what);
  });
}

CLI::Validator device_number() {
  const CLI::Range numbers(0, std::numeric_limits<int>::max());
  return accepted_by([numbers](const std::string& text) {
    require(numbers(text).empty(), "'{}' is no device; write numbers, such as 0,1", text);
  });
}

CLI::Validator output_path() {
  return accepted_by([](const std::string& path) {
    require(!path.empty(), "needs a file name, or '-' for standard output");
  });
}

CLI::Validator folder_name() {
  return accepted_by([](const std::string& path) { require(!path.empty(), "needs the name of a folder"); });
}

}  // namespace onehop::cli
