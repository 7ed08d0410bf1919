#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the documents claim about the tree: that links lead somewhere, and that programs and declarations they show are
the real ones.

    tests/lint/check_docs.py [ROOT]        check a tree (default: this repository)
    tests/lint/check_docs.py --self-test   show that each rule catches what it is for
"""
import re
import sys

import tree_check

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```[^\n]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```[^\n]*$.*?^```", re.MULTILINE | re.DOTALL)
# A block that shows a file of the tree says so in the line before it: <!-- examples/01_all_reduce.cc -->
SHOWN_FILE = re.compile(r"^<!-- ([\w./-]+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# One that shows declarations of a header: <!-- in include/onehop/group.h -->
SHOWN_PART = re.compile(r"^<!-- in ([\w./-]+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r'"(ONEHOP_[A-Z_]+)"')
# What Python reads besides.
READ_BY_PYTHON = re.compile(r'os\.(?:environ\.get\(|environ\[|getenv\()"([A-Z_]+)"(?!\] *=)')
VARIABLES_PAGE = "docs/guide/groups.md"
VARIABLES_TABLE = "src/base/variables.cc"


def program(file):
    """As pages show it: without the line that names its license."""
    return re.sub(r"\A(//|/\*|#) SPDX-[^\n]*\n", "", file.read_text())


def anchor(heading):
    """As code hosts make it: lower case, no punctuation, dashes for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def declarations(text):
    """Each of them in one line, without what only compilers read."""
    ends = re.compile(r";|\{$|\}\s*$", re.MULTILINE)
    ignored = re.compile(r"\bONEHOP_API\b|^\s*inline\b")
    return [" ".join(ignored.sub("", each).split()) for each in ends.split(re.sub(r"//[^\n]*", "", text))]


def check_page(root, page, text):
    prose = CODE.sub("", text)
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or not file.is_relative_to(root):
            yield f"link to {target}: there is no such file"
        elif fragment and fragment not in [anchor(each) for each in HEADING.findall(FENCED.sub("", file.read_text()))]:
            yield f"link to {target}: there is no such heading"
    for path, shown in SHOWN_FILE.findall(text):
        file = root / path
        if not file.is_file() or program(file) != shown:
            yield f"the program after <!-- {path} --> is not that file"
    for path, shown in SHOWN_PART.findall(text):
        file = root / path
        real = declarations(file.read_text()) if file.is_file() else []
        for each in filter(None, declarations(shown)):
            if each not in real:
                yield f"{path} has no declaration '{each}'"


def sources(root):
    """Those that programs run, without tests."""
    for top in ("src", "tools", "nccl", "python/src", "python/onehop"):
        yield from (each for each in sorted((root / top).rglob("*.cc")) if not each.stem.endswith("_test"))
    for top in ("python/onehop", "python/onehop_plugins"):
        yield from sorted((root / top).rglob("*.py"))


def check_variables(root):
    """Every variable of this project that the sources name must be on the page that lists them all; any other one that Python
    reads, on some page."""
    page = root / VARIABLES_PAGE
    listed = page.read_text() if page.is_file() else ""
    table = root / VARIABLES_TABLE
    known = set(VARIABLE.findall(table.read_text())) if table.is_file() else None
    everywhere = "".join(each.read_text() for each in sorted((root / "docs").rglob("*.md")))
    for file in sources(root):
        text = file.read_text()
        names = set(VARIABLE.findall(text))
        for name in sorted(names):
            if f"`{name}`" not in listed:
                yield f"{VARIABLES_PAGE}: {name} is missing, which {file.relative_to(root)} reads or sets"
            if known is not None and name not in known:
                yield f"{VARIABLES_TABLE}: {name} is missing, which {file.relative_to(root)} reads or sets"
        for name in sorted(set(READ_BY_PYTHON.findall(text)) - names):
            if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", everywhere):
                yield f"docs: {name} is on no page, and {file.relative_to(root)} reads it"


def check_tree(root):
    root = root.resolve()
    pages = sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("bench/**/*.md")])
    complaints = [f"{page.relative_to(root)}: {what}" for page in pages for what in check_page(root, page, page.read_text())]
    return len(pages), complaints + list(check_variables(root))


# Files of a tree, and a word of the complaint they must cause (None: they must pass).
SELF_TEST = [
    ({"README.md": "[a](docs/a.md)"}, "no such file"),
    ({"README.md": "[a](../outside.md)"}, "no such file"),
    ({"README.md": "[a](docs/a.md#there)", "docs/a.md": "# Here\n```\n# There\n```\n"}, "no such heading"),
    ({"README.md": "<!-- a.cc -->\n```cpp\nint b;\n```\n", "a.cc": "int a;\n"}, "not that file"),
    ({"README.md": "<!-- in a.h -->\n```cpp\nvoid f(int a);\n```\n", "a.h": "void f(int a, int b = 0);\n"}, "no declaration"),
    ({"README.md": "<!-- in a.h -->\n```cpp\nvoid f();\n```\n"}, "no declaration"),
    ({"README.md": "", "src/a.cc": 'get("ONEHOP_NEW")'}, "ONEHOP_NEW is missing"),
    ({"README.md": "[a](docs/a.md#its-name-10) `[b](c)` [d](https://example.org)", "docs/a.md": "## Its `name`: 1.0\n"}, None),
    ({"README.md": "<!-- a.cc -->\n```cpp\nint a;\n```\n", "a.cc": "// SPDX-License-Identifier: X\nint a;\n"}, None),
    ({"README.md": "<!-- a.cc -->\n```cpp\nint a;\n```\n", "a.cc": "int a;\n"}, None),
    ({"README.md": "<!-- in a.h -->\n```cpp\nint f(int a,\n      int b);\nvoid g();\n```\n",
      "a.h": "int e() {\n  return 0;\n}\n/// Both.\nONEHOP_API int f(int a, int b);\ninline void g() {\n  f();\n}\n"}, None),
    ({"docs/guide/groups.md": "`ONEHOP_NEW`", "src/base/variables.cc": "", "src/a.cc": 'get("ONEHOP_NEW")'},
     "variables.cc: ONEHOP_NEW is missing"),
    ({"docs/guide/groups.md": "`ONEHOP_OLD`", "src/a.cc": 'get("ONEHOP_OLD")', "src/a_test.cc": '"ONEHOP_X"'}, None),
    ({"README.md": "", "python/onehop/a/b.py": 'os.environ.get("ONEHOP_NEW", "")'}, "ONEHOP_NEW is missing"),
    ({"README.md": "", "python/onehop_plugins/a.py": 'is_on("ONEHOP_NEW")'}, "ONEHOP_NEW is missing"),
    ({"README.md": "", "python/onehop/a.cc": 'getenv("ONEHOP_NEW")'}, "ONEHOP_NEW is missing"),
    ({"docs/a.md": "GLOO_NEW, `GLOO_NEWER`", "python/onehop/a.py": 'os.environ["GLOO_NEW"]'}, "GLOO_NEW is on no page"),
    ({"docs/a.md": "`$GLOO_OLD/b`", "python/onehop/a.py": 'os.environ.get("GLOO_OLD")\nos.environ["GLOO_SET"] = "1"\n'}, None),
]


if __name__ == "__main__":
    sys.exit(tree_check.main(check_tree, [(files, files, word) for files, word in SELF_TEST]))
