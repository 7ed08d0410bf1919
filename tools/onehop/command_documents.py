#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the man page and the completions of bash, zsh and fish from what the command says of itself.

    onehop --command-tree | command_documents.py OUT VERSION      writes onehop.1, onehop.bash, _onehop, onehop.fish
    command_documents.py --self-test
"""
import json
import re
import sys
from pathlib import Path

FILES = ("onehop.1", "onehop.bash", "_onehop", "onehop.fish")
# The endings of written files, where the option is not called so.
ENDINGS = {"out": "json"}


def named(command):
    return [option for option in command["options"] if option["names"]]


def positionals(command):
    return [option for option in command["options"] if option["positional"]]


def takes_folder(option):
    return option["value"] == "DIR"


def ending(option):
    """Of the files that the option takes: all that are read are JSON, what is written is named after the option."""
    if option["value"] == "FILE|-":
        name = option["names"][0].lstrip("-")
        return ENDINGS.get(name, name)
    return "json" if option["value"] == "FILE" else None


def choices(option):
    """Of the option's first value."""
    return option["choices"][0] if option["choices"] else []


def words(command):
    return [name for option in named(command) for name in option["names"]]


# --- man page ---


def roff(text):
    """As it is: no character of it may mean something to troff."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def man_options(command):
    for option in command["options"]:
        names = ", ".join(option["names"]) or option["positional"]
        value = f" {option['value']}" if option["names"] and option["value"] else ""
        more = " ..." if option["repeated"] else ""
        default = f" (default: {option['default']})" if option["default"] else ""
        required = " Required." if option["required"] else ""
        yield f".TP\n.B {roff(names)}{roff(value + more)}\n{roff(option['description'] + default + '.' + required)}\n"


def man_page(tree, version):
    yield f'.TH {tree["name"].upper()} 1 "" "{tree["name"]} {version}" "User Commands"\n'
    yield f".SH NAME\n{roff(tree['description'].replace(tree['name'] + ': ', tree['name'] + ' - ', 1))}\n"
    yield f".SH SYNOPSIS\n.B {tree['name']}\n.I COMMAND\n[options]\n"
    yield ".SH OPTIONS\n"
    yield from man_options(tree)
    yield ".SH COMMANDS\n"
    for command in tree["commands"]:
        yield f".SS {tree['name']} {roff(command['name'])}\n{roff(command['description'])}.\n"
        yield from man_options(command)
        if command["footer"].strip():
            yield f".PP\n.nf\n{roff(command['footer'].strip())}\n.fi\n"
    yield f".SH NOTES\n.nf\n{roff(tree['footer'].strip())}\n.fi\n"


# --- completions ---

BASH = r"""_onehop() {
  local i each word typed=() command='' words='' ending='' list='' prefix=''
  COMPREPLY=()
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    each=${COMP_WORDS[i]}
    if [[ $each == -- ]] && ((i < COMP_CWORD)); then
      # What follows is another program's.
      compopt -o default 2> /dev/null || :
      return 0
    fi
    # "--type=bf16" is three words, or one if COMP_WORDBREAKS lacks "=".
    if [[ $each == = ]]; then
      ((i < COMP_CWORD)) || typed+=('')
      continue
    fi
    prefix=''
    if [[ $each == --*=* ]]; then
      prefix=${each%%=*}=
      typed+=("${each%%=*}")
      each=${each#*=}
    fi
    ((i == COMP_CWORD)) || [[ $each == -* || -n $command ]] || command=$each
    typed+=("$each")
  done
  word=${typed[*]: -1}
"""

# compopt fails outside of a completion, which is where tests call the function.
BASH_REPLY = r"""  if [[ -n $list && $word == *,* ]]; then
    prefix+=${word%,*},
    for each in ${prefix//[=,]/ }; do
      words=" $words "
      words=${words/" $each "/ }
    done
    word=${word##*,}
  fi
  if [[ $ending == / ]]; then
    compopt -o filenames 2> /dev/null || :
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -d -- "$word")
  elif [[ -n $ending && $word != -* ]]; then
    # Other files, if there are none of these.
    compopt -o filenames -o default 2> /dev/null || :
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -X "!*.$ending" -- "$word"; compgen -P "$prefix" -d -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$word")
  fi
}
"""


def bash_values(option, index):
    """What sets the shell's variables for one of the option's values."""
    found = option["choices"][index] if index < len(option["choices"]) else []
    if found:
        return f"words='{' '.join(found)}'" + (" list=1" if option["list"] else "")
    if takes_folder(option):
        return "ending=/"
    return f"ending={ending(option)}" if ending(option) else "return 0"


def bash_command(command):
    more = [choice for option in positionals(command) for choice in choices(option)]
    yield f"    {command['name']})\n      words='{' '.join(words(command) + more)}'\n"
    files = {ending(option) for option in positionals(command)} - {None}
    for each in sorted(files):
        yield f"      ending={each}\n"
    for index in range(max((len(option["choices"]) for option in named(command)), default=0) or 1):
        options = [option for option in named(command) if not option["flag"] and index < max(1, len(option["choices"]))]
        if not options:
            continue
        yield f"      case ${{typed[*]: -{index + 2}:1}} in\n"
        for values in dict.fromkeys(bash_values(option, index) for option in options):
            names = [name for option in options if bash_values(option, index) == values for name in option["names"]]
            yield f"        {'|'.join(names)}) {values} ;;\n"
        yield "      esac\n"
    if any(not choices(option) and not ending(option) for option in positionals(command)):  # a program
        yield "      compopt -o default 2> /dev/null || :\n"
    yield "      ;;\n"


def bash(tree):
    yield f"# bash completion of {tree['name']}\n{BASH}"
    yield "  case $command in\n"
    yield f"    '') words='{' '.join(words(tree) + [each['name'] for each in tree['commands']])}' ;;\n"
    for command in tree["commands"]:
        yield from bash_command(command)
    yield f"  esac\n{BASH_REPLY}complete -F _onehop {tree['name']}\n"


def zsh_text(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_values(option, index=0):
    found = option["choices"][index] if index < len(option["choices"]) else []
    if option["list"]:
        return f" _sequence compadd - {' '.join(found)}"
    if found:
        return f"({' '.join(found)})"
    if takes_folder(option):
        return "_files -/"
    return f'_files -g "*.{ending(option)}(-.)"' if ending(option) else " "


def zsh_arguments(command):
    for option in named(command):
        values = option["value"].split() if len(option["choices"]) > 1 else [option["value"] or "value"]
        action = "" if option["flag"] else "".join(f":{zsh_text(value)}:{zsh_values(option, index)}" for index, value in enumerate(values))
        for name in option["names"]:
            # The value may follow after "=", or at once.
            joint = "" if option["flag"] else "=" if name.startswith("--") else "+"
            yield f"'{'*' if option['repeated'] else ''}{name}{joint}[{zsh_text(option['description'])}]{action}'"
    for option in positionals(command):
        values = zsh_values(option).strip() or "_files"
        yield f"'{'*' if option['repeated'] else ''}:{zsh_text(option['positional'])}:{values}'"


def zsh(tree):
    yield f"#compdef {tree['name']}\n_onehop() {{\n  local -a commands\n  commands=(\n"
    for command in tree["commands"]:
        yield f"    '{command['name']}:{zsh_text(command['description'])}'\n"
    yield "  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n"
    yield "    _arguments " + " ".join(zsh_arguments(tree)) + "\n    return\n  fi\n"
    yield "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n"
    for command in tree["commands"]:
        yield f"    {command['name']})\n      _arguments \\\n        " + " \\\n        ".join(zsh_arguments(command)) + "\n      ;;\n"
    yield "  esac\n}\n_onehop \"$@\"\n"


def fish_text(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_values(option):
    if option["flag"]:
        return ""
    if option["list"]:
        return " -x -a " + fish_text(f"(__fish_complete_list , 'string split \" \" \"{' '.join(choices(option))}\"')")
    if choices(option):
        return f" -x -a {fish_text(' '.join(choices(option)))}"
    if takes_folder(option):
        return " -x -a '(__fish_complete_directories)'"
    # -k: the files with the ending come first.
    return f" -x -k -a '(__fish_complete_suffix .{ending(option)})'" if ending(option) else " -x"


def fish(tree):
    program = tree["name"]
    yield f"# fish completion of {program}\n"
    scopes = [(tree, "__fish_use_subcommand")]
    scopes += [(each, f"__fish_seen_subcommand_from {each['name']}") for each in tree["commands"]]
    for command in tree["commands"]:
        yield f"complete -c {program} -n __fish_use_subcommand -f -a {command['name']} -d {fish_text(command['description'])}\n"
    for command, condition in scopes:
        scope = f"complete -c {program} -n {fish_text(condition)}"
        for option in named(command):
            names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option["names"])
            yield f"{scope}{names}{fish_values(option)} -d {fish_text(option['description'])}\n"
            for index, found in enumerate(option["choices"][1:], 2):
                if found:
                    before = " ".join(f'"$typed[-{index}]" = {name}' for name in option["names"])
                    each = f"{condition}; and set -l typed (commandline -opc); and test {before}"
                    yield f"complete -c {program} -n {fish_text(each)} -f -a {fish_text(' '.join(found))}\n"
        for option in positionals(command):
            if choices(option):
                yield f"{scope} -f -a {fish_text(' '.join(choices(option)))}\n"
            elif ending(option):
                yield f"{scope} -f -k -a '(__fish_complete_suffix .{ending(option)})'\n"
        if command is not tree and not positionals(command):
            yield f"{scope} -f\n"


def make(tree, version):
    texts = (man_page(tree, version), bash(tree), zsh(tree), fish(tree))
    return {name: "".join(text) for name, text in zip(FILES, texts)}


def option(names, value="", **more):
    return {"names": names, "positional": "", "value": value, "flag": not value, "repeated": False, "required": False,
            "default": "", "choices": [], "list": False, "description": "It's [odd]: a\\b"} | more


def self_test():
    positional = option([], "TEXT", positional="what", required=True)
    tree = {"name": "onehop", "description": "onehop: does it", "footer": "\n.notes", "options": [option(["-h", "--help"])],
            "commands": [{"name": "do-it", "description": "Do it", "footer": "", "commands": [],
                          "options": [option(["--json"], "FILE"), option(["-n", "--ranks"], "N"), positional,
                                      option(["--op"], "OP", choices=[["sum", "min"]]),
                                      option(["--types"], "LIST", choices=[["f32", "i8"]], list=True),
                                      option(["--call"], "WHAT SIZE TYPE", choices=[["all", "none"], [], ["f32"]]),
                                      option(["--out"], "FILE|-"), option(["--html"], "FILE|-"), option(["--log"], "DIR"),
                                      option([], "FILE", positional="report"),
                                      option([], "", positional="kind", choices=[["one", "two"]])]}]}
    made = make(tree, "1.2")
    expected = {
        "onehop.1": [".SS onehop do\\-it\n", "\\-\\-json FILE", "It's [odd]: a\\eb", "\n\\&.notes", ".B what", " Required."],
        "onehop.bash": ["do-it)", "words='--json -n --ranks --op --types --call --out --html --log one two'\n      ending=json\n",
                        "--json|--out) ending=json ;;", "-n|--ranks) return 0", "--op) words='sum min' ;;", "--html) ending=html",
                        "--types) words='f32 i8' list=1 ;;", "--log) ending=/ ;;", "-4:1} in\n        --call) words='f32' ;;"],
        "_onehop": ["'do-it:Do it'", "--json=[It'\\''s \\[odd\\]\\: a\\\\b]:FILE:_files -g \"*.json(-.)\"'", "'-n+[", "':what:_files'",
                    ":OP:(sum min)'", "':kind:(one two)'", ":LIST: _sequence compadd - f32 i8'", ":DIR:_files -/'",
                    ":WHAT:(all none):SIZE: :TYPE:(f32)'", "':report:_files -g \"*.json(-.)\"'"],
        "onehop.fish": ["-l json -x -k -a '(__fish_complete_suffix .json)'", "-s n -l ranks -x -d", "'It\\'s [odd]: a\\\\b'",
                        "-l op -x -a 'sum min'", "-f -a 'one two'", "\"f32 i8\"", "-l log -x -a '(__fish_complete_directories)'",
                        "\"$typed[-3]\" = --call' -f -a 'f32'", "-f -k -a '(__fish_complete_suffix .json)'"],
    }
    missing = [(name, text) for name, texts in expected.items() for text in texts if text not in made[name]]
    for name, text in missing:
        print(f"{name} lacks {text!r}:\n{made[name]}", file=sys.stderr)
    return 1 if missing else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    folder, version = arguments
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in make(json.load(sys.stdin), version).items():
        Path(folder, name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
