// SPDX-License-Identifier: Apache-2.0
// onehop topo: shows the topology of this machine, or a saved one.
#include <memory>

#include "onehop/topology.h"

#include "base/check.h"
#include "base/json_field.h"
#include "commands.h"
#include "options.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kTopoFooter = R"(Examples:
  onehop topo                           matrix of links, devices, processors and caches
  onehop topo --devices 0,1,2,3         also: are these four fully connected?
  onehop topo --json machine.json       save, to look at it elsewhere or to plan for it in tests; '-': only JSON
  onehop topo --from machine.json       show a saved one
  onehop topo --svg machine.svg         a drawing for a browser; '-' writes it to standard output

Exit code: 0 shown; 1 the file cannot be read, is not a topology, or cannot be written; 2 bad usage.)";

struct TopoOptions {
  std::string json;  ///< file, "-" for standard output, empty for none
  std::string svg;   ///< file, "-" for standard output, empty for no drawing
  std::string from;
  std::vector<int> devices;
};

/// "Connectivity of GPUs 0,1: fully connected: ...".
std::string verdict(const Topology& topology, const std::vector<int>& numbers) {
  std::vector<DeviceId> devices;
  for (const int number : numbers) {
    if (number >= topology.device_count()) {
      throw UsageError(fmt::format("--devices names device {}, but {}", number,
                                   topology.device_count() == 0
                                       ? "there are none here"
                                       : fmt::format("they go from 0 to {}", topology.device_count() - 1)));
    }
    devices.emplace_back(number);
  }
  std::string list;
  for (const int number : numbers) list += fmt::format("{}{}", list.empty() ? "" : ",", number);
  return fmt::format("Connectivity of GPUs {}: {}\n", list, topology.explain_connectivity(devices));
}

/// Adds a member that readers of topologies skip: time, host and command.
std::string with_origin(const Topology& topology) {
  Json document = Json::parse(topology.to_json());
  add_origin(document["written"]);
  return write_json(document);
}

int run_topo(const TopoOptions& options) {
  check_writable(options.svg);
  check_writable(options.json);
  const Topology topology = options.from.empty() ? Topology::probe() : Topology::load(options.from);
  const std::string answer = options.devices.empty() ? std::string{} : verdict(topology, options.devices);
  write_output(options.svg, topology.to_svg());
  write_output(options.json, with_origin(topology));
  // A drawing replaces the text, a JSON file does not.
  if (options.svg.empty() && !is_stdout(options.json)) {
    const std::string from = options.from.empty() ? "\n" + describe(origin()) + "\n" : "";
    print(topology.to_text() + (answer.empty() ? "" : "\n" + answer) + from);
  }
  return kExitOk;
}

}  // namespace

void add_topo(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<TopoOptions>();
  CLI::App* const sub =
      app.add_subcommand("topo", "Show devices, links, processors: who reaches whom, and how");
  sub->footer(kTopoFooter);
  CLI::Option* const json =
      sub->add_option("--json", options->json, "Write JSON, which --from reads; '-' (or nothing): only that")
          ->type_name(kOutputType)
          ->expected(0, 1);
  CLI::Option* const svg = sub->add_option("--svg", options->svg, "Write a drawing; '-': to standard output")
                               ->type_name(kOutputType)
                               ->check(output_path());
  sub->add_option("--from", options->from, "Show a saved topology (JSON) instead of this machine's")
      ->type_name("FILE");
  sub->add_option("--devices", options->devices, "Add the verdict for these devices alone, such as 0,1")
      ->delimiter(',')
      ->type_name("LIST")
      ->check(device_number())
      ->excludes(svg);
  sub->callback([options, json, &run] {
    if (*json && options->json.empty()) options->json = "-";
    if (is_stdout(options->json) && !options->devices.empty())
      throw UsageError("--devices adds a verdict to the text, of which '--json -' shows nothing");
    refuse_same_destination("--json", options->json, "--svg", options->svg);
    run = [options] { return run_topo(*options); };
  });
}

}  // namespace onehop::cli
