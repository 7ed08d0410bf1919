// SPDX-License-Identifier: Apache-2.0
#include "ptx/module.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

namespace onehop::ptx {
namespace {

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Splits at `separator`, except within brackets of any kind.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) {
      if (std::string_view("({[").find(text[i]) != std::string_view::npos) ++depth;
      if (std::string_view(")}]").find(text[i]) != std::string_view::npos) --depth;
      if (text[i] != separator || depth != 0) continue;
    }
    if (const std::string_view part = trim(text.substr(begin, i - begin)); !part.empty())
      parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  while (!(text = trim(text)).empty()) {
    std::size_t end = 0;
    while (end < text.size() && !is_space(text[end])) ++end;
    found.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return found;
}

unsigned number(std::string_view text) {
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// The bytes of a type such as ".b32".
unsigned bytes_of(std::string_view type) {
  std::size_t digits = 0;
  while (digits < type.size() && std::isdigit(static_cast<unsigned char>(type[digits])) == 0) ++digits;
  return number(type.substr(digits)) / 8;
}

struct Variable {
  std::string name;
  unsigned bytes = 0;
};
/// ".param .align 4 .b8 name[16]" or ".param .b64 name".
Variable parse_variable(std::string_view text) {
  const std::vector<std::string_view> parts = words(text);
  std::string_view name = parts.back();
  unsigned bytes = bytes_of(parts[parts.size() - 2]);
  if (const std::size_t bracket = name.find('['); bracket != name.npos) {
    bytes *= number(name.substr(bracket + 1));
    name = name.substr(0, bracket);
  }
  return {std::string(name), bytes};
}

std::vector<Variable> parse_variables(std::string_view list) {
  std::vector<Variable> variables;
  for (const std::string_view each : split(list, ',')) variables.push_back(parse_variable(each));
  return variables;
}

std::size_t closing(std::string_view text, std::size_t open, char opens, char closes) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == opens) ++depth;
    if (text[i] == closes && --depth == 0) return i;
  }
  throw std::runtime_error("PTX: no closing bracket");
}

/// Replaces comments by spaces.
void blank_comments(std::string& text) {
  for (const auto& [opens, closes] : {std::pair{"//", "\n"}, std::pair{"/*", "*/"}}) {
    for (std::size_t at = 0; (at = text.find(opens, at)) != text.npos;) {
      const std::size_t end = std::min(text.find(closes, at), text.size());
      const std::size_t after = closes == std::string_view("\n") ? end : std::min(end + 2, text.size());
      std::replace_if(
          text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(after),
          [](char c) { return c != '\n'; }, ' ');
      at = after;
    }
  }
}

}  // namespace

Module::Module(std::string text) : text_(std::move(text)) {
  blank_comments(text_);
  const std::string_view all = text_;
  std::size_t at = 0;
  while (true) {
    const std::size_t entry = all.find(".entry ", at);
    const std::size_t func = all.find(".func ", at);
    const std::size_t begin = std::min(entry, func);
    for (const std::string_view declaration : split(all.substr(at, std::min(begin, all.size()) - at), ';')) {
      if (declaration.starts_with(".shared")) shared_.push_back(declaration);
    }
    if (begin == all.npos) break;
    const std::size_t end = all.find_first_of("{;", begin);
    const std::string_view header = all.substr(begin, end - begin);
    at = end + 1;
    if (all[end] == ';') continue;  // a declaration
    const std::size_t close = closing(all, end, '{', '}');
    // The name precedes the last list in parentheses, or follows the list of results.
    std::string_view rest = trim(header.substr(header.find(' ')));
    if (rest.front() == '(') rest = trim(rest.substr(rest.find(')') + 1));
    std::string name(trim(rest.substr(0, rest.find('('))));
    sources_[std::move(name)] = {header, all.substr(end + 1, close - end - 1), begin == entry, nullptr};
    at = close + 1;
  }
}

std::vector<std::string> Module::kernels() const {
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_) {
    if (source.is_kernel) names.push_back(name);
  }
  return names;
}

class Decoder {
 public:
  Decoder(Module& module, Function& function) : module_(module), f_(function) {}

  void decode(const Module::Source& source) {
    first_line_ = 1 + static_cast<std::uint32_t>(std::count(module_.text_.c_str(), source.body.data(), '\n'));
    scopes_.emplace_back();
    for (const std::string_view declaration : module_.shared_) declare_shared(declaration);
    decode_header(source);
    std::string_view text = source.body;
    line_ = first_line_;
    const auto take = [&](std::size_t length) {
      line_ += static_cast<std::uint32_t>(
          std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length), '\n'));
      text.remove_prefix(length);
    };
    while (true) {
      std::size_t blank = 0;
      while (blank < text.size() && is_space(text[blank])) ++blank;
      take(blank);
      if (text.empty()) break;
      if (text.front() == '{') {
        scopes_.emplace_back();
        take(1);
      } else if (text.front() == '}') {
        scopes_.pop_back();
        take(1);
      } else {
        const std::size_t end = text.find_first_of(";:");
        const std::string_view statement = trim(text.substr(0, end));
        if (text[end] == ':') {
          labels_[std::string(statement)] = static_cast<std::int32_t>(f_.code.size());
        } else {
          decode_statement(statement);
        }
        take(end + 1);
      }
    }
    emit({.op = f_.is_kernel ? Op::exit : Op::ret});
    for (const auto& [index, label] : jumps_) f_.code[index].offset = labels_.at(label);
    // The memory of the frame follows the registers.
    const auto start = static_cast<std::uint32_t>(8 * registers_);
    for (Instruction& each : f_.code) {
      if (each.op == Op::load_frame || each.op == Op::store_frame)
        each.offset += static_cast<std::int32_t>(start);
    }
    for (auto* const slots : {&f_.params, &f_.results}) {
      for (Function::Slot& slot : *slots) slot.offset += start;
    }
    std::size_t deepest = 0;
    f_.frame_words = registers_ + (memory_ + 7) / 8;
    for (CallSite& call : f_.calls) {
      for (ParamCopy& copy : call.params) copy.from += start;
      for (ParamCopy& copy : call.results) copy.to += start;
      deepest = std::max(deepest, call.callee->stack_words);
    }
    f_.stack_words = f_.frame_words + deepest;
  }

 private:
  struct Symbol {
    enum Kind { reg, frame, kernel_param, shared } kind = reg;
    std::int32_t at = 0;
    std::uint32_t bytes = 0;
  };
  struct Address {
    std::optional<Operand> base;
    const Symbol* symbol = nullptr;
    std::int32_t offset = 0;
  };

  [[noreturn]] void fail(std::string_view statement, const std::string& why = "unknown instruction") const {
    throw std::runtime_error("PTX: " + f_.name + ", line " + std::to_string(line_) + ": " + why + ": " +
                             std::string(statement));
  }

  std::uint32_t reserve(std::uint32_t bytes) {
    memory_ = (memory_ + 15) / 16 * 16;
    const auto at = static_cast<std::uint32_t>(memory_);
    memory_ += bytes;
    return at;
  }
  void decode_header(const Module::Source& source) {
    std::string_view rest = trim(source.header.substr(source.header.find(' ')));
    const auto slots = [&](std::string_view list, std::vector<Function::Slot>& to) {
      for (const Variable& each : parse_variables(list)) {
        const std::uint32_t at = reserve(each.bytes);
        scopes_.back()[each.name] = {Symbol::frame, static_cast<std::int32_t>(at), each.bytes};
        to.push_back({at, each.bytes});
      }
    };
    if (rest.front() == '(') {
      slots(rest.substr(1, rest.find(')') - 1), f_.results);
      rest = rest.substr(rest.find(')') + 1);
    }
    const std::size_t open = rest.find('(');
    if (open == rest.npos) return;
    const std::string_view list = rest.substr(open + 1, rest.find(')', open) - open - 1);
    if (f_.is_kernel) {
      const std::vector<Variable> params = parse_variables(list);
      if (params.size() != 1) fail(list, "more than one parameter");
      f_.param_bytes = params.front().bytes;
      scopes_.back()[params.front().name] = {Symbol::kernel_param, 0, params.front().bytes};
      const std::size_t most = source.header.find(".maxntid ");
      if (most != source.header.npos) f_.max_threads = number(trim(source.header.substr(most + 9)));
    } else {
      slots(list, f_.params);
    }
  }

  void decode_statement(std::string_view statement) {
    if (statement.starts_with(".")) return declare(statement);
    if (statement.starts_with("@")) {
      // A branch around the instruction, or the branch itself.
      const std::size_t end = statement.find_first_of(" \t\n");
      const bool negated = statement[1] == '!';
      const Operand predicate = operand(statement.substr(negated ? 2 : 1, end - (negated ? 2 : 1)), 1);
      const std::string_view rest = trim(statement.substr(end));
      if (rest.starts_with("bra")) {
        jump(negated ? Op::branch_unless : Op::branch_if, predicate, rest);
        return;
      }
      const std::size_t at = f_.code.size();
      emit({.op = negated ? Op::branch_if : Op::branch_unless, .a = predicate});
      decode_statement(rest);
      f_.code[at].offset = static_cast<std::int32_t>(f_.code.size());
      return;
    }
    const std::size_t end = std::min(statement.find_first_of(" \t\n"), statement.size());
    name_ = statement.substr(0, end);
    statement_ = statement;
    const std::string_view rest = statement.substr(end);
    parts_ = split(name_, '.');
    type_ = parts_.back();
    args_ = split(rest, ',');
    decode_instruction();
  }

  void declare(std::string_view statement) {
    if (statement.starts_with(".pragma")) return;
    if (statement.starts_with(".reg")) {
      const std::vector<std::string_view> parts = words(statement);
      const std::string_view names = trim(
          statement.substr(static_cast<std::size_t>(parts[1].data() + parts[1].size() - statement.data())));
      for (const std::string_view name : split(names, ',')) {
        const std::size_t bracket = name.find('<');
        if (bracket == name.npos) {
          scopes_.back()[std::string(name)] = {Symbol::reg, static_cast<std::int32_t>(registers_++)};
          continue;
        }
        const unsigned count = number(name.substr(bracket + 1));
        const std::string prefix(name.substr(0, bracket));
        for (unsigned i = 0; i < count; ++i)
          scopes_.back()[prefix + std::to_string(i)] = {Symbol::reg, static_cast<std::int32_t>(registers_++)};
      }
    } else if (statement.starts_with(".param")) {
      const Variable variable = parse_variable(statement);
      scopes_.back()[variable.name] = {Symbol::frame, static_cast<std::int32_t>(reserve(variable.bytes)),
                                       variable.bytes};
    } else if (statement.starts_with(".shared")) {
      declare_shared(statement);
    } else {
      fail(statement, "unknown declaration");
    }
  }

  void declare_shared(std::string_view statement) {
    const Variable variable = parse_variable(statement);
    f_.shared_bytes = (f_.shared_bytes + 15) / 16 * 16;
    scopes_.back()[variable.name] = {Symbol::shared, static_cast<std::int32_t>(f_.shared_bytes),
                                     variable.bytes};
    f_.shared_bytes += variable.bytes;
  }

  void emit(const Instruction& instruction) {
    f_.code.push_back(instruction);
    f_.lines.push_back(line_);
  }
  void jump(Op op, Operand predicate, std::string_view text) {
    jumps_.emplace_back(f_.code.size(), std::string(words(text).back()));
    emit({.op = op, .a = predicate});
  }
  [[nodiscard]] const Symbol* find(std::string_view name) const {
    const std::string key(name);
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(key); found != scope->end()) return &found->second;
    }
    return nullptr;
  }
  Operand constant(std::uint64_t value) {
    const auto found = std::ranges::find(f_.constants, value);
    const auto index = found - f_.constants.begin();
    if (found == f_.constants.end()) f_.constants.push_back(value);
    return ~static_cast<Operand>(index);
  }
  std::int32_t reg(std::string_view name) {
    const Symbol* const symbol = find(name);
    if (symbol == nullptr || symbol->kind != Symbol::reg)
      fail(statement_, "no register " + std::string(name));
    return symbol->at;
  }
  /// `bits`: of the value.
  Operand operand(std::string_view text, unsigned bits) {
    if (const Symbol* const symbol = find(text)) {
      if (symbol->kind == Symbol::reg) return symbol->at;
      if (symbol->kind == Symbol::shared) return constant(static_cast<std::uint64_t>(symbol->at));
      fail(statement_, "address of " + std::string(text));
    }
    if (text.starts_with("0f") || text.starts_with("0d"))
      return constant(std::stoull(std::string(text.substr(2)), nullptr, 16));
    const bool negative = text.starts_with("-");
    const std::string_view digits = text.substr(negative ? 1 : 0);
    if (digits.empty() || std::isdigit(static_cast<unsigned char>(digits[0])) == 0)
      fail(statement_, "unknown operand " + std::string(text));
    std::uint64_t value = std::stoull(std::string(digits), nullptr, 0);
    if (negative) value = 0 - value;
    if (bits == 1) value = value != 0 ? 1 : 0;
    if (bits < 64) value &= (std::uint64_t{1} << bits) - 1;
    return constant(value);
  }
  [[nodiscard]] unsigned bits(std::string_view type) const { return type == "pred" ? 1 : 8 * bytes_of(type); }
  Operand arg(std::size_t i) { return operand(args_.at(i), bits(type_)); }
  Operand arg(std::size_t i, unsigned width) { return operand(args_.at(i), width); }

  Address address(std::string_view text) {
    text = trim(text.substr(1, text.size() - 2));
    Address found;
    const std::size_t plus = text.find('+');
    if (plus != text.npos) found.offset = std::stoi(std::string(text.substr(plus + 1)));
    const std::string_view base = trim(text.substr(0, plus));
    const Symbol* const symbol = find(base);
    if (symbol == nullptr) fail(statement_, "unknown address");
    if (symbol->kind == Symbol::reg) {
      found.base = symbol->at;
    } else {
      found.symbol = symbol;
    }
    return found;
  }
  [[nodiscard]] bool has(std::string_view part) const {
    return std::ranges::find(parts_, part) != parts_.end();
  }

  void decode_memory(bool loads) {
    Instruction made;
    made.width = static_cast<std::uint8_t>(bytes_of(type_));
    std::string_view data = args_.at(loads ? 0 : 1);
    const Address at = address(args_.at(loads ? 1 : 0));
    std::vector<std::string_view> elements{data};
    if (data.starts_with("{")) elements = split(data.substr(1, data.size() - 2), ',');
    made.vector = static_cast<std::uint8_t>(elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i)
      made.d[i] = loads ? reg(elements[i]) : operand(elements[i], 8U * made.width);
    made.offset = at.offset;
    if (at.base) {
      made.a = *at.base;
      if (has("shared")) {
        made.op = loads ? Op::load_shared : Op::store_shared;
      } else if (has("param")) {
        if (!loads) fail(statement_);
        made.op = Op::load_param;
      } else {
        made.op = loads ? Op::load : Op::store;
      }
    } else if (at.symbol->kind == Symbol::frame) {
      if (at.offset < 0 ||
          static_cast<unsigned>(at.offset) + unsigned{made.width} * made.vector > at.symbol->bytes)
        fail(statement_, "outside of the variable");
      made.offset += at.symbol->at;
      made.op = loads ? Op::load_frame : Op::store_frame;
    } else if (at.symbol->kind == Symbol::kernel_param && loads) {
      made.op = Op::load_param;
      made.a = constant(0);
      made.b = 1;  // the offset counts from the start of the parameters
    } else {
      fail(statement_);
    }
    emit(made);
  }

  void decode_call() {
    // call.uni (results), name, (params)
    std::size_t i = 0;
    std::vector<std::string_view> results;
    if (args_.at(0).starts_with("(")) results = split(args_[i++].substr(1, args_[0].size() - 2), ',');
    const std::string_view name = args_.at(i++);
    std::vector<std::string_view> params;
    if (i < args_.size()) params = split(args_[i].substr(1, args_[i].size() - 2), ',');
    CallSite call;
    call.callee = module_.find(name);
    if (call.callee == nullptr) fail(statement_, "unknown function");
    const auto copies = [&](std::span<const std::string_view> names, const std::vector<Function::Slot>& slots,
                            bool back, std::vector<ParamCopy>& to) {
      if (names.size() != slots.size()) fail(statement_, "number of parameters");
      for (std::size_t k = 0; k < names.size(); ++k) {
        const Symbol* const symbol = find(names[k]);
        if (symbol == nullptr || symbol->kind != Symbol::frame || symbol->bytes != slots[k].bytes)
          fail(statement_, "parameter " + std::string(names[k]));
        const auto here = static_cast<std::uint32_t>(symbol->at);
        to.push_back(back ? ParamCopy{slots[k].offset, here, slots[k].bytes}
                          : ParamCopy{here, slots[k].offset, slots[k].bytes});
      }
    };
    copies(params, call.callee->params, false, call.params);
    copies(results, call.callee->results, true, call.results);
    emit({.op = Op::call, .offset = static_cast<std::int32_t>(f_.calls.size())});
    f_.calls.push_back(std::move(call));
  }

  void decode_mov() {
    if (args_[0].starts_with("{")) {
      const auto to = split(args_[0].substr(1, args_[0].size() - 2), ',');
      if (to.size() != 2 || type_ != "b64") fail(statement_);
      return emit({.op = Op::unpack64, .d = {reg(to[0]), reg(to[1])}, .a = arg(1)});
    }
    const std::int32_t d = reg(args_[0]);
    if (args_[1].starts_with("{")) {
      const auto from = split(args_[1].substr(1, args_[1].size() - 2), ',');
      if (from.size() != 2 || type_ != "b64") fail(statement_);
      return emit({.op = Op::pack64, .d = {d}, .a = operand(from[0], 32), .b = operand(from[1], 32)});
    }
    static const std::map<std::string_view, Op> kSpecial = {
        {"%tid.x", Op::tid_x},     {"%ntid.x", Op::ntid_x},          {"%ctaid.x", Op::ctaid_x},
        {"%ctaid.y", Op::ctaid_y}, {"%nctaid.x", Op::nctaid_x},      {"%nctaid.y", Op::nctaid_y},
        {"%laneid", Op::laneid},   {"%globaltimer", Op::globaltimer}};
    if (const auto special = kSpecial.find(args_[1]); special != kSpecial.end())
      return emit({.op = special->second, .d = {d}});
    if (const Symbol* const symbol = find(args_[1]);
        symbol != nullptr && symbol->kind == Symbol::kernel_param)
      return emit({.op = Op::param_address, .d = {d}});
    emit({.op = Op::mov, .d = {d}, .a = arg(1)});
  }

  void decode_instruction() {
    const std::string_view root = parts_.front();
    if (root == "ld") return decode_memory(true);
    if (root == "st") return decode_memory(false);
    if (root == "call") return decode_call();
    if (root == "mov") return decode_mov();
    if (root == "bra") return jump(Op::branch, 0, statement_);
    if (root == "ret") return emit({.op = f_.is_kernel ? Op::exit : Op::ret});
    if (root == "exit") return emit({.op = Op::exit});
    if (name_ == "griddepcontrol.wait") return emit({.op = Op::depend_wait});
    if (name_ == "griddepcontrol.launch_dependents") return emit({.op = Op::depend_launch});
    if (root == "setp") return decode_setp();
    if (root == "cvt") return decode_cvt();
    if (root == "cvta") return emit({.op = Op::mov, .d = {reg(args_[0])}, .a = arg(1)});
    if (root == "selp")
      return emit({.op = Op::selp, .d = {reg(args_[0])}, .a = arg(1), .b = arg(2), .c = arg(3, 1)});
    if (root == "bfi")
      return emit({.op = type_ == "b64" ? Op::bfi64 : Op::bfi32,
                   .d = {reg(args_[0])},
                   .a = arg(1),
                   .b = arg(2),
                   .c = arg(3, 32),
                   .e = arg(4, 32)});
    if (root == "prmt" && parts_.size() == 2)
      return emit({.op = Op::prmt, .d = {reg(args_[0])}, .a = arg(1), .b = arg(2), .c = arg(3)});
    if (name_ == "neg.s32")
      return emit({.op = Op::sub32, .d = {reg(args_[0])}, .a = constant(0), .b = arg(1)});
    if (root == "mad")
      return emit({.op = Op::mad_lo32, .d = {reg(args_[0])}, .a = arg(1), .b = arg(2), .c = arg(3)});
    if (name_ == "bar.warp.sync") return emit({.op = Op::bar_warp, .a = arg(0, 32)});
    if (name_ == "bar.sync" || name_ == "barrier.cta.sync")
      return emit({.op = Op::bar, .a = arg(0, 32), .b = args_.size() > 1 ? arg(1, 32) : constant(0)});
    if (name_ == "bar.red.and.pred" || name_ == "barrier.cta.red.and.pred")
      return emit({.op = Op::bar_red_and,
                   .d = {reg(args_[0])},
                   .a = arg(1, 32),
                   .b = args_.size() > 3 ? arg(2, 32) : constant(0),
                   .c = operand(args_.back(), 1)});
    if (name_ == "shfl.sync.idx.b32") {
      const std::size_t bar = args_[0].find('|');
      return emit(
          {.op = Op::shfl_idx,
           .d = {reg(args_[0].substr(0, bar)), bar == args_[0].npos ? -1 : reg(args_[0].substr(bar + 1))},
           .a = arg(1),
           .b = arg(2),
           .c = arg(3),
           .e = arg(4)});
    }
    if (name_ == "vote.sync.all.pred" || name_ == "vote.sync.any.pred")
      return emit({.op = has("all") ? Op::vote_all : Op::vote_any,
                   .d = {reg(args_[0])},
                   .a = arg(1),
                   .e = arg(2, 32)});
    if (root == "atom") {
      if (type_ != "u32" && type_ != "b32") fail(statement_);
      const Address at = address(args_.at(1));
      if (!at.base) fail(statement_);
      return emit({.op = has("add")    ? Op::atom_add32
                         : has("exch") ? Op::atom_exch32
                                       : (fail(statement_), Op::exit),
                   .width = 4,
                   .offset = at.offset,
                   .d = {reg(args_[0])},
                   .a = *at.base,
                   .b = arg(2)});
    }
    if (root == "red") {
      const Address at = address(args_.at(0));
      if (!has("add") || type_ != "u64" || !at.base) fail(statement_);
      return emit({.op = Op::red_add64, .width = 8, .offset = at.offset, .a = *at.base, .b = arg(1)});
    }
    decode_arithmetic();
  }

  void decode_setp() {
    const std::string key = std::string(parts_.at(1)) + "." + std::string(type_);
    static const std::map<std::string_view, Op> kOrdered = {
        {"lt.s32", Op::lt_s32},   {"le.s32", Op::le_s32},   {"gt.s32", Op::gt_s32}, {"ge.s32", Op::ge_s32},
        {"lt.s64", Op::lt_s64},   {"le.s64", Op::le_s64},   {"gt.s64", Op::gt_s64}, {"ge.s64", Op::ge_s64},
        {"lt.u32", Op::lt_u},     {"le.u32", Op::le_u},     {"gt.u32", Op::gt_u},   {"ge.u32", Op::ge_u},
        {"lt.u64", Op::lt_u},     {"le.u64", Op::le_u},     {"gt.u64", Op::gt_u},   {"ge.u64", Op::ge_u},
        {"eq.f32", Op::eq_f32},   {"lt.f32", Op::lt_f32},   {"gt.f32", Op::gt_f32}, {"num.f32", Op::num_f32},
        {"nan.f32", Op::nan_f32}, {"eq.f64", Op::eq_f64},   {"lt.f64", Op::lt_f64}, {"gt.f64", Op::gt_f64},
        {"num.f64", Op::num_f64}, {"nan.f64", Op::nan_f64},
    };
    Op op{};
    if (const auto found = kOrdered.find(key); found != kOrdered.end()) {
      op = found->second;
    } else if ((parts_[1] == "eq" || parts_[1] == "ne") && !type_.starts_with("f")) {
      op = parts_[1] == "eq" ? Op::eq : Op::ne;  // registers hold zeros beyond their width
    } else {
      fail(statement_);
    }
    if (parts_.size() != 3) fail(statement_);
    emit({.op = op, .d = {reg(args_[0])}, .a = arg(1), .b = arg(2)});
  }

  void decode_cvt() {
    static const std::map<std::string_view, Op> kConversions = {
        {"cvt.u32.u64", Op::trunc32}, {"cvt.u64.u32", Op::mov},     {"cvt.s64.s32", Op::sign_extend32},
        {"cvt.u16.u32", Op::trunc16}, {"cvt.u16.u64", Op::trunc16}, {"cvt.u32.u16", Op::mov},
        {"cvt.u64.u16", Op::mov}};
    if (name_ == "cvt.rn.bf16x2.f32" || name_ == "cvt.rn.f16x2.f32")
      return emit({.op = has("bf16x2") ? Op::cvt_bf16x2 : Op::cvt_f16x2,
                   .d = {reg(args_[0])},
                   .a = arg(1),
                   .b = arg(2)});
    const auto found = kConversions.find(name_);
    if (found == kConversions.end()) fail(statement_);
    emit({.op = found->second, .d = {reg(args_[0])}, .a = arg(1)});
  }

  void decode_arithmetic() {
    static const std::map<std::string_view, Op> kOps = {{"add.s32", Op::add32},
                                                        {"add.u32", Op::add32},
                                                        {"add.s64", Op::add64},
                                                        {"add.u64", Op::add64},
                                                        {"sub.s32", Op::sub32},
                                                        {"sub.s64", Op::sub64},
                                                        {"mul.lo.s32", Op::mul_lo32},
                                                        {"mul.lo.u32", Op::mul_lo32},
                                                        {"mul.lo.s64", Op::mul_lo64},
                                                        {"mul.lo.u64", Op::mul_lo64},
                                                        {"mul.wide.u32", Op::mul_wide_u},
                                                        {"mul.wide.u16", Op::mul_wide_u},
                                                        {"mul.wide.s32", Op::mul_wide_s32},
                                                        {"div.u32", Op::div_u32},
                                                        {"div.s32", Op::div_s32},
                                                        {"div.u64", Op::div_u64},
                                                        {"rem.u32", Op::rem_u32},
                                                        {"neg.s64", Op::neg64},
                                                        {"and.b16", Op::and_},
                                                        {"and.b32", Op::and_},
                                                        {"and.b64", Op::and_},
                                                        {"and.pred", Op::and_},
                                                        {"or.b16", Op::or_},
                                                        {"or.b32", Op::or_},
                                                        {"or.b64", Op::or_},
                                                        {"or.pred", Op::or_},
                                                        {"xor.b32", Op::xor_},
                                                        {"xor.b64", Op::xor_},
                                                        {"xor.pred", Op::xor_},
                                                        {"not.b16", Op::not16},
                                                        {"not.b32", Op::not32},
                                                        {"not.b64", Op::not64},
                                                        {"not.pred", Op::not_pred},
                                                        {"shl.b32", Op::shl32},
                                                        {"shl.b64", Op::shl64},
                                                        {"shr.u32", Op::shr_u32},
                                                        {"shr.u64", Op::shr_u64},
                                                        {"min.s32", Op::min_s32},
                                                        {"max.s32", Op::max_s32},
                                                        {"min.u32", Op::min_u32},
                                                        {"max.u32", Op::max_u32},
                                                        {"min.s64", Op::min_s64},
                                                        {"max.s64", Op::max_s64},
                                                        {"min.u64", Op::min_u64},
                                                        {"max.u64", Op::max_u64},
                                                        {"add.f32", Op::add_f32},
                                                        {"mul.f32", Op::mul_f32},
                                                        {"div.rn.f32", Op::div_f32},
                                                        {"min.NaN.f32", Op::min_nan_f32},
                                                        {"max.NaN.f32", Op::max_nan_f32},
                                                        {"add.f64", Op::add_f64},
                                                        {"mul.f64", Op::mul_f64},
                                                        {"div.rn.f64", Op::div_f64},
                                                        {"bfind.shiftamt.u32", Op::bfind_shiftamt_u32},
                                                        {"brev.b32", Op::brev32}};
    const auto found = kOps.find(name_);
    if (found == kOps.end()) fail(statement_);
    const bool shifts = parts_[0] == "shl" || parts_[0] == "shr";
    emit({.op = found->second,
          .d = {reg(args_[0])},
          .a = arg(1),
          .b = args_.size() > 2 ? (shifts ? arg(2, 32) : arg(2)) : 0});
  }

  Module& module_;
  Function& f_;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::map<std::string, std::int32_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> jumps_;
  std::size_t registers_ = 0;
  std::size_t memory_ = 0;
  std::uint32_t first_line_ = 0;
  std::uint32_t line_ = 0;
  // The current instruction.
  std::string_view statement_;
  std::string_view name_;
  std::vector<std::string_view> parts_;
  std::string_view type_;
  std::vector<std::string_view> args_;
};

const Function* Module::find(std::string_view name) {
  const auto found = sources_.find(name);
  if (found == sources_.end()) return nullptr;
  Source& source = found->second;
  if (source.decoded == nullptr) {
    auto function = std::make_unique<Function>();
    function->name = std::string(name);
    function->is_kernel = source.is_kernel;
    Decoder(*this, *function).decode(source);
    source.decoded = std::move(function);
  }
  return source.decoded.get();
}

}  // namespace onehop::ptx
