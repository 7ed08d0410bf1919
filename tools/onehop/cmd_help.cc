// SPDX-License-Identifier: Apache-2.0
// onehop help: prints the help of a command, or the environment variables. --command-tree prints the options as
// JSON.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/json_field.h"
#include "base/nearest.h"
#include "base/variables.h"
#include "commands.h"
#include "options.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kHelpFooter = R"(Examples:
  onehop help                           what there is
  onehop help bench                     as 'onehop bench --help'
  onehop help environment               every variable that the library and this command read

Exit code: 0 shown; 2 there is no such command.)";

constexpr const char* kEnvironment = "environment";

void print_environment() {
  std::string text =
      "An empty variable counts as not set. A value that makes no sense is a warning,\n"
      "and so is a variable that begins with ONEHOP_ and is none of these.\n";
  for (const Variable& each : variables()) {
    text += fmt::format("\n{} ({})\n", each.name, each.readers);
    text += wrapped(std::string(each.meaning), "  ");
    text += wrapped(fmt::format("values: {}", each.values), "  ");
  }
  text += "\nAlso read:\n";
  text += wrapped(
      "ENABLE_INTRA_NODE_COMM and TEST_INTRA_NODE_COMM for IntraNodeComm, as PyTorch does; "
      "CUDA_VISIBLE_DEVICES; NO_COLOR and TERM for colors.",
      "  ");
  print(text);
}

int run_help(const CLI::App& app, const std::string& topic) {
  if (topic.empty()) {
    // Not app.help(), which shows the help of the selected command, `help`.
    print(app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
  } else if (topic == kEnvironment) {
    print_environment();
  } else if (const auto found =
                 app.get_subcommands([&](const CLI::App* each) { return each->get_name() == topic; });
             !found.empty()) {
    print(found.front()->help(app.get_name()));
  } else {
    std::vector<std::string> words = names_of_commands(app);
    words.emplace_back(kEnvironment);
    const std::vector<std::string_view> views(words.begin(), words.end());
    const auto meant = nearest(topic, views);
    throw UsageError(fmt::format("there is no help about '{}'{}", topic,
                                 meant ? fmt::format(": did you mean '{}'?", *meant)
                                       : fmt::format("; there is about {}", fmt::join(words, ", "))));
  }
  return kExitOk;
}

Json to_json(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const bool flag = option.get_items_expected_max() == 0;
  return {{"names", names},
          {"positional", option.get_positional() ? option.get_name(true) : ""},
          {"value", flag ? "" : option.get_type_name()},
          {"flag", flag},
          {"repeated", option.get_items_expected_max() > std::max(1, option.get_items_expected_min())},
          {"required", option.get_required()},
          {"default", option.get_default_str()},
          {"choices", choices_of(option).of_values},
          {"list", choices_of(option).list},
          {"description", option.get_description()}};
}

Json to_json(const CLI::App& app) {
  Json options = Json::array();
  // CLI11 hides options and commands whose group has no name.
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
  print(to_json(app).dump(1) + "\n");
  return kExitOk;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(each->get_name());
  return names;
}

void add_help(CLI::App& app, std::function<int()>& run) {
  auto topic = std::make_shared<std::string>();
  CLI::App* const sub = app.add_subcommand("help", "Explain a command, or the environment variables");
  sub->footer(kHelpFooter);
  std::vector<std::string> topics = names_of_commands(app);
  topics.emplace_back(kEnvironment);
  with_choices(sub->add_option("topic", *topic, "A command, or 'environment'"), std::move(topics))
      ->type_name("");
  sub->callback([topic, &app, &run] { run = [topic, &app] { return run_help(app, *topic); }; });
}

}  // namespace onehop::cli
