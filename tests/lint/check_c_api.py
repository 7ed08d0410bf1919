#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that C has everything C++ has: compares the public C++ headers with a table of C equivalents.

    tests/lint/check_c_api.py [ROOT]        check a tree (default: this repository)
    tests/lint/check_c_api.py --self-test   show that each rule catches what it is for

Every public function, every field of a public structure and every enumeration of include/onehop/*.h has a row in
tests/lint/c_equivalents.txt that names its C equivalent, or gives the reason why C needs none. A row that leads nowhere on
either side is an error, and so is a C function that is declared and not defined. Not looked at: templates (each rests on an
untyped function), constants, operators, what the compiler would write (destructors, copies, moves), and namespaces `detail`.

Rows, below the [header] that declares the C++ side:
    Group::barrier(Duration) = onehop_group_barrier     one C function or several
    Group::state() - internal                           none, and why
    struct JoinOptions = onehop_join_options_t          every field `f` is there as `f` or `f_ms`, or has a row of its own
    JoinOptions.size = onehop_join_options_t.world_size a field, a function, or a reason as above
    enum DType = ONEHOP_DTYPE_                          every enumerator `e` is ONEHOP_DTYPE_E, with the same number
    [onehop.h] - includes the others                    a header of which nothing needs a row
"""
import re
import sys

import tree_check

TABLE = "tests/lint/c_equivalents.txt"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*$", re.MULTILINE | re.DOTALL)
CLASS = re.compile(r"^(?:template\s*<.*>\s*)?(class|struct)\s+(\w+)[^()]*$", re.DOTALL)
ENUM = re.compile(r"^enum\s+(?:class\s+)?(\w+)")
SKIPPED = re.compile(r"^(?:template|using|typedef|friend|static_assert|concept|class|struct|enum)\b")
CONSTANT = re.compile(r"^(?:inline |static )*(?:inline |static )*const(?:expr|init)\b")


def matching(text, at, opening="{", closing="}"):
    """The position after the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {opening: 1, closing: -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError(f"no {closing} closes: {text[at:at + 60]}")


def split_outside(text, separator):
    """Split at separators that are in no brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "<({[") - (c in ">)}]")
        if c == separator and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return [each.strip() for each in [*parts, part] if each.strip()]


def parameter_type(parameter):
    kind = " ".join(split_outside(parameter, "=")[0].split())
    named = re.match(r"^(.*[\w>&*\]])(?<![&*])\s+(\w+)$|^(.*[&*>])\s*(\w+)$", kind)
    if named and (named[2] or named[4]) not in ("const", "int", "char"):
        kind = named[1] or named[3]
    return kind.replace(" &", "&").replace(" *", "*")


def function_of(statement, scope):
    """(name, [parameter types]) of a declaration, or None."""
    head = statement
    depth = 0
    for i, c in enumerate(head):
        depth += (c == "<") - (c == ">")
        if c == "=" and depth == 0:
            return None  # a variable
        if c == "(" and depth == 0:
            name = re.search(r"(~?\w+)\s*$", head[:i])
            parameters = split_outside(head[i + 1:matching(head, i, "(", ")") - 1], ",")
            return (name[1] if name else "", [parameter_type(each) for each in parameters])
    return None


def is_written_by_the_compiler(name, parameters, statement, owner):
    if name.startswith("~"):
        return True
    if name != owner:
        return False
    return statement.endswith("default") or statement.endswith("delete") or parameters in ([f"const {owner}&"], [f"{owner}&&"])


def enumerators(body):
    values, following = {}, 0
    for each in split_outside(body, ","):
        name, _, value = (part.strip() for part in each.partition("="))
        following = int(value, 0) if value else following
        values[name] = following
        following += 1
    return values


def declarations(text):
    """What a C++ header offers: {key: None}, where enumerations have {key: {enumerator: number}}."""
    text = re.sub(r"\[\[\w+\]\]|\bONEHOP_API\b", "", PREPROCESSOR.sub("", COMMENT.sub("", text)))
    found, scopes = {}, []  # a scope: [name or None, public now]
    statement, at = "", 0

    def owner():
        return scopes[-1][0] if scopes else None

    def is_public():
        return all(public for _, public in scopes)

    def take():
        line = " ".join(statement.split())
        if not line or not is_public() or SKIPPED.match(line) or re.search(r"\boperator\b", line):
            return
        line = re.sub(r"^(constexpr )?explicit ", "", line)
        function = None if CONSTANT.match(line) and "(" not in line.split("=")[0] else function_of(line, owner())
        if function:
            name, parameters = function
            if not is_written_by_the_compiler(name, parameters, line, owner()):
                path = "::".join([scope for scope, _ in scopes if scope] + [name])
                found[f"{path}({', '.join(parameters)})"] = None
        elif owner() and not CONSTANT.match(line):
            field = re.search(r"(\w+)\s*$", re.split(r"[={]", line)[0])
            found[f"{owner()}.{field[1]}"] = None
            found[f"struct {owner()}"] = None

    while at < len(text):
        c = text[at]
        if c == ";":
            take()
            statement = ""
        elif c == "{":
            line = " ".join(statement.split())
            kind = CLASS.match(line)
            if statement.count("(") > statement.count(")"):  # a default argument
                at = matching(text, at)
                continue
            if line.startswith(("namespace", "extern")) or not line:
                scopes.append([None, not line.endswith("detail")])
                statement = ""
            elif enum := ENUM.match(line):
                end = matching(text, at)
                if is_public():
                    found[f"enum {enum[1]}"] = enumerators(text[at + 1:end - 1])
                at, statement = end, ""
                continue
            elif kind and not line.startswith("template"):
                scopes.append([kind[2], kind[1] == "struct"])
                statement = ""
            else:
                end = matching(text, at)
                if function_of(re.sub(r"^template\s*<[^>]*>\s*", "", line), owner()):
                    take()
                    statement = ""
                at = end
                continue
        elif c == "}":
            if scopes:
                scopes.pop()
            statement = ""
        elif c == ":" and statement.strip() in ("public", "private", "protected"):
            scopes[-1][1] = statement.strip() == "public"
            statement = ""
        else:
            statement += c
        at += 1
    return found


def c_declarations(text):
    """(functions, {structure: fields}, {constant: number}) of the C headers."""
    text = COMMENT.sub("", text)
    functions = set(re.findall(r"\bONEHOP_API\b[^;(]*?\b(onehop_\w+)\(", text))
    structures = {name: set() for name in re.findall(r"typedef struct \w+ (\w+);", text)}  # handles have no fields
    constants = {}
    for match in re.finditer(r"typedef struct \w+ \{", text):
        end = matching(text, match.end() - 1)
        name = re.match(r"\s*(\w+);", text[end:])[1]
        fields = re.findall(r"(?:\(\*(\w+)\)\([^;]*|(\w+)(?:\[\w+\])?);", text[match.end():end - 1])
        structures[name] = {a or b for a, b in fields}
    for match in re.finditer(r"\benum \{([^}]*)\}", text):
        constants.update(enumerators(match[1]))
    return functions, structures, constants


def read_table(text):
    """{header: {key: (sign, rest, line)}} and complaints."""
    rows, complaints, header = {}, [], None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if match := re.match(r"^\[([\w.]+)\](?: - \S.*)?$", line):
            header = rows.setdefault(match[1], {} if line.endswith("]") else None)
            continue
        match = re.match(r"^(.+?) (=|-) (.+)$", line)
        if header is None or not match:
            complaints.append(f"{TABLE}:{number}: no row: {line}")
        elif match[1] in header:
            complaints.append(f"{TABLE}:{number}: a second row for {match[1]}")
        else:
            header[match[1]] = (match[2], match[3], number)
    return rows, complaints


def check_target(target, c, where):
    """Whether each of the named C functions or fields is there."""
    functions, structures, _ = c
    for name in target.replace(",", " ").split():
        structure, _, field = name.partition(".")
        if field and field not in structures.get(structure, set()):
            yield f"{where}: {structure} has no field {field}"
        elif not field and name not in functions and name not in structures:
            yield f"{where}: c_api.h declares no {name}"


def check_fields(name, structure, offered, rows, c, where):
    fields = c[1].get(structure)
    if fields is None:
        yield f"{where}: c_api.h has no structure {structure}"
        return
    for key in offered:
        if key.startswith(f"{name}.") and key not in rows:
            field = key.removeprefix(f"{name}.")
            if not fields & {field, f"{field}_ms"}:
                yield f"{where}: {structure} has neither {field} nor {field}_ms; add it, or a row for {key}"


def check_enumerators(prefix, numbers, c, where):
    for name, number in numbers.items():
        constant = prefix + name.upper()
        if c[2].get(constant) != number:
            yield f"{where}: c_api.h needs {constant} = {number}, and has {c[2].get(constant, 'none')}"


def check_header(name, offered, rows, c):
    structures = {key.split()[1]: row for key, row in rows.items() if key.startswith("struct ")}
    for key, numbers in offered.items():
        if key in rows:
            sign, rest, line = rows[key]
            where = f"{TABLE}:{line}"
            if sign == "-":
                continue
            if key.startswith("enum "):
                yield from check_enumerators(rest, numbers, c, where)
            elif key.startswith("struct "):
                yield from check_fields(key.split()[1], rest, offered, rows, c, where)
            else:
                yield from check_target(rest, c, where)
        elif "." not in key.split("(")[0] or key.split(".")[0] not in structures:
            yield f"include/onehop/{name}: no row in {TABLE} for: {key}"
    for key, (_, _, line) in rows.items():
        if key not in offered:
            yield f"{TABLE}:{line}: {name} has no {key} any more"


def check_tree(root):
    include = root / "include/onehop"
    c_headers = [include / "c_api.h", *sorted((include / "c").glob("*.h"))]
    c = c_declarations("\n".join(file.read_text() for file in c_headers if file.exists()))
    rows, complaints = read_table((root / TABLE).read_text())
    seen = 0
    for file in sorted(include.glob("*.h")):
        if file.name == "c_api.h":
            continue
        offered = declarations(file.read_text())
        seen += len(offered)
        wanted = rows.pop(file.name, {})
        if wanted is not None:
            complaints += check_header(file.name, offered, wanted, c)
    complaints += [f"{TABLE}: there is no header {name}" for name in rows]
    sources = "\n".join(COMMENT.sub("", file.read_text()) for file in sorted((root / "src/c_api").glob("*.cc")))
    defined = set(re.findall(r"^\w[^;{}()=]*?\b(onehop_\w+)\([^;{}]*\)\s*\{", sources, re.MULTILINE))
    complaints += [f"c_api.h declares {name}, and src/c_api defines no such function" for name in sorted(c[0] - defined)]
    return seen, complaints


C = "ONEHOP_API int onehop_f(int a);\n"
BODY = "int onehop_f(int a) {\n  return a;\n}\n"
# C++ header a.h, C header, its source, table, and a word of the complaint (None: it must pass).
SELF_TEST = [
    ("int f(int a);", C, BODY, "[a.h]\nf(int) = onehop_f", None),
    ("int f(int a);\nint g();", C, BODY, "[a.h]\nf(int) = onehop_f", "no row in tests/lint/c_equivalents.txt for: g()"),
    ("int f(int a);\nint f(long a, int b = 0);", C, BODY, "[a.h]\nf(int) = onehop_f", "for: f(long, int)"),
    ("int f(int a);", C, BODY, "[a.h]\nf(int) = onehop_f\ng() - gone", "has no g() any more"),
    ("int f(int a);", C, BODY, "[a.h]\nf(int) = onehop_g", "declares no onehop_g"),
    ("int f(int a);", C + "ONEHOP_API void onehop_g(void);", BODY, "[a.h]\nf(int) = onehop_f", "defines no such function"),
    ("int f(int a);", C, "int onehop_f(int a);\n", "[a.h]\nf(int) = onehop_f", "defines no such function"),
    ("int f(int a);", C, BODY, "[a.h]\nf(int)", "no row: f(int)"),
    ("int f(int a);", C, BODY, "[a.h] - sugar", None),
    ("int f(int a);", C, BODY, "[a.h] - sugar\nf(int) - why", "no row: f(int) - why"),
    ("namespace detail {\nint f(int a);\n}", C, BODY, "", None),
    ("int f(int a);", C, BODY, "[a.h]\nf(int) = onehop_f\nf(int) - twice", "second row"),
    ("int f(int a);", C, BODY, "[a.h]\nf(int) = onehop_f\n[b.h]\nx() - y", "no header b.h"),
    ("class K {\n public:\n  K();\n  K(const K&);\n  ~K();\n  explicit K(int a);\n  K& operator=(K&&) = default;\n  void m() const;\n"
     " private:\n  void p();\n  int x_ = 1;\n};", C, BODY, "[a.h]\nK::K() = onehop_f\nK::K(int) = onehop_f\nK::m() = onehop_f", None),
    ("class K {\n public:\n  void m(const std::function<void(int)>& body, std::span<const int> all = {});\n};", C, BODY, "[a.h]",
     "for: K::m(const std::function<void(int)>&, std::span<const int>)"),
    ("struct S {\n  int a = 0;\n  Duration t{};\n};", C + "typedef struct s_t {\n  int a;\n  int64_t t_ms;\n} s_t;\n", BODY,
     "[a.h]\nstruct S = s_t", None),
    ("struct S {\n  int a = 0;\n  int b = 1 << 3;\n};", C + "typedef struct s_t {\n  int a;\n} s_t;\n", BODY, "[a.h]\nstruct S = s_t",
     "neither b nor b_ms"),
    ("struct S {\n  int a = 0;\n  int b;\n};", C + "typedef struct s_t {\n  int a;\n  int c[4];\n} s_t;\n", BODY,
     "[a.h]\nstruct S = s_t\nS.b = s_t.c", None),
    ("struct S {\n  int a;\n};", C, BODY, "[a.h]", "for: struct S"),
    ("struct S {\n  int a;\n};", C + "typedef struct s s_t;\n", BODY, "[a.h]\nstruct S = s_t", "neither a nor a_ms"),
    ("struct S {\n  int a;\n};", C + "typedef struct s s_t;\n", BODY, "[a.h]\nstruct S = s_t\nS.a = onehop_f", None),
    ("enum class E : int { one = 1, two };", C + "enum { E_ONE = 1, E_TWO = 2 };", BODY, "[a.h]\nenum E = E_", None),
    ("enum class E : int { one = 1, two };", C + "enum { E_ONE = 1 };", BODY, "[a.h]\nenum E = E_", "needs E_TWO = 2, and has none"),
    ("enum class E { one, two };", C + "enum { E_ONE = 1, E_TWO = 0 };", BODY, "[a.h]\nenum E = E_", "needs E_ONE = 0, and has 1"),
    ("enum class E { one };", C, BODY, "[a.h]", "for: enum E"),
    ("template <class T>\nint f(T a) {\n  return 1;\n}\ninline constexpr int kN = 3;\nusing A = int;\nclass F;", C, BODY, "", None),
]


def cases():
    for cpp, c_header, source, table, expected in SELF_TEST:
        files = {"include/onehop/a.h": f"namespace n {{\n{cpp}\n}}\n", "include/onehop/c_api.h": c_header, "src/c_api/a.cc": source,
                 TABLE: table}
        yield repr(cpp), files, expected


if __name__ == "__main__":
    sys.exit(tree_check.main(check_tree, list(cases())))
