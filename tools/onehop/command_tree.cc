// SPDX-License-Identifier: Apache-2.0
#include "command_tree.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "commands.h"

namespace onehop::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  // What takes no value is a flag.
  const bool flag = option.get_items_expected_max() == 0;
  return {{"names", names},
          {"positional", option.get_positional() ? option.get_name(true) : ""},
          {"value", flag ? "" : option.get_type_name()},
          {"flag", flag},
          {"repeated", option.get_items_expected_max() > 1},
          {"required", option.get_required()},
          {"default", option.get_default_str()},
          {"description", option.get_description()}};
}

Json to_json(const CLI::App& app) {
  Json options = Json::array();
  // A group without a name is CLI11's way of hiding.
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) options.push_back(to_json(*option));
  }
  Json commands = Json::array();
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) commands.push_back(to_json(*command));
  }
  return {{"name", app.get_name()},
          {"description", app.get_description()},
          {"footer", app.get_footer()},
          {"options", options},
          {"commands", commands}};
}

}  // namespace

int print_command_tree(const CLI::App& app) {
  fmt::print("{}\n", to_json(app).dump(1));
  return kExitOk;
}

}  // namespace onehop::cli
