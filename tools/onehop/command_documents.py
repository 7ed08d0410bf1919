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
# What values are called that are names of files.
FILE_VALUES = ("FILE", "FILE|-", "DIR")


def named(command):
    return [option for option in command["options"] if option["names"]]


def takes_file(option):
    return option["value"] in FILE_VALUES


def choices(option):
    return option.get("choices", [])


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


def bash(tree):
    yield f"# bash completion of {tree['name']}\n_onehop() {{\n"
    yield "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= words= files= each\n"
    yield "  COMPREPLY=()\n"
    yield '  for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do\n'
    yield "    # What follows is another program's.\n    [[ $each != -- ]] || return 0\n"
    yield '    [[ $each == -* || -n $command ]] || command=$each\n  done\n'
    yield "  case $command in\n"
    yield f"    '') words='{' '.join(words(tree) + [each['name'] for each in tree['commands']])}' ;;\n"
    for command in tree["commands"]:
        files = "|".join(name for option in named(command) if takes_file(option) for name in option["names"])
        values = "|".join(name for option in named(command)
                          if not option["flag"] and not takes_file(option) and not choices(option) for name in option["names"])
        positional = [choice for option in command["options"] if option["positional"] for choice in choices(option)]
        yield f"    {command['name']})\n      words='{' '.join(words(command) + positional)}'\n      case $before in\n"
        for option in named(command):
            if choices(option):
                yield f"        {'|'.join(option['names'])}) words='{' '.join(choices(option))}' ;;\n"
        if files:
            yield f"        {files}) files=1 ;;\n"
        if values:
            yield f"        {values}) return 0 ;;\n"
        yield "      esac\n      ;;\n"
    yield "  esac\n"
    yield '  if [[ -n $files ]]; then\n    mapfile -t COMPREPLY < <(compgen -f -- "$word")\n'
    yield '  else\n    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")\n  fi\n}\n'
    yield f"complete -o default -F _onehop {tree['name']}\n"


def zsh_text(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_values(option):
    if choices(option):
        return f"({' '.join(choices(option))})"
    return "_files" if takes_file(option) else " "


def zsh_arguments(command):
    for option in named(command):
        for name in option["names"]:
            action = "" if option["flag"] else f":{zsh_text(option['value'] or 'value')}:{zsh_values(option)}"
            yield f"'{'*' if option['repeated'] else ''}{name}[{zsh_text(option['description'])}]{action}'"
    for option in command["options"]:
        if option["positional"]:
            values = zsh_values(option) if choices(option) else "_files"
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


def fish(tree):
    program = tree["name"]
    yield f"# fish completion of {program}\n"
    scopes = [(tree, "__fish_use_subcommand")]
    scopes += [(each, f"__fish_seen_subcommand_from {each['name']}") for each in tree["commands"]]
    for command in tree["commands"]:
        yield f"complete -c {program} -n __fish_use_subcommand -f -a {command['name']} -d {fish_text(command['description'])}\n"
    for command, condition in scopes:
        for option in named(command):
            names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option["names"])
            value = "" if option["flag"] else " -r -F" if takes_file(option) else " -x"
            if choices(option):
                value += f" -a {fish_text(' '.join(choices(option)))}"
            yield f"complete -c {program} -n {fish_text(condition)}{names}{value} -d {fish_text(option['description'])}\n"
        for option in command["options"]:
            if option["positional"] and choices(option):
                yield f"complete -c {program} -n {fish_text(condition)} -f -a {fish_text(' '.join(choices(option)))}\n"


def make(tree, version):
    texts = (man_page(tree, version), bash(tree), zsh(tree), fish(tree))
    return {name: "".join(text) for name, text in zip(FILES, texts)}


def option(names, value="", **more):
    return {"names": names, "positional": "", "value": value, "flag": not value, "repeated": False, "required": False,
            "default": "", "description": "It's [odd]: a\\b"} | more


def self_test():
    positional = option([], "TEXT", positional="what", required=True)
    tree = {"name": "onehop", "description": "onehop: does it", "footer": "\n.notes", "options": [option(["-h", "--help"])],
            "commands": [{"name": "do-it", "description": "Do it", "footer": "", "commands": [],
                          "options": [option(["--json"], "FILE"), option(["-n", "--ranks"], "N"), positional,
                                      option(["--op"], "OP", choices=["sum", "min"]),
                                      option([], "", positional="kind", choices=["one", "two"])]}]}
    made = make(tree, "1.2")
    expected = {
        "onehop.1": [".SS onehop do\\-it\n", "\\-\\-json FILE", "It's [odd]: a\\eb", "\n\\&.notes", ".B what", " Required."],
        "onehop.bash": ["do-it)", "words='--json -n --ranks --op one two'", "--json) files=1", "-n|--ranks) return 0",
                        "--op) words='sum min' ;;"],
        "_onehop": ["'do-it:Do it'", "--json[It'\\''s \\[odd\\]\\: a\\\\b]:FILE:_files'", "':what:_files'", ":OP:(sum min)'",
                    "':kind:(one two)'"],
        "onehop.fish": ["-l json -r -F", "-s n -l ranks -x", "'It\\'s [odd]: a\\\\b'", "-l op -x -a 'sum min'", "-f -a 'one two'"],
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
