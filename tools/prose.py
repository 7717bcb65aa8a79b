#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reject unclear English: tools/prose.py [--count] [FILE...]

Reads documents, manual pages, comments and messages. CONTRIBUTING.md explains the rules. Without
files it reads the whole tree. A word in quotes or backquotes is a name and is not judged.
"""
import argparse
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A pattern, and what to write instead. Patterns ignore case; ^ is the start of a sentence.
RULES = [
    (r"\b(nobody|somebody|everybody|anybody)\b", "name the actor: the client, another process, no process"),
    (r"\b(whoever|whomever)\b", "name the actor: the caller, the process that ..."),
    (r"\bthat which\b", "name the thing"),
    (r"\b(that|which|who) (is|are|was|were) (not )?there\b", "existing, present, missing"),
    (r"\b(is|are|was|were) not there\b", "is missing, does not exist"),
    (r"\b(goes|go|went|gone|going) on\b(?! (to|the|a)\b)", "continue"),
    (r"\b(give|gives|gave|given|giving) up\b(?! to\b)", "drop, release, abandon"),
    (r"\b(take|takes|took|taken|taking) back\b", "reclaim, revoke"),
    (r"\bmend(s|ed|ing)?\b", "fix"),
    (r"\b(is|are|was|were|be|been|being|gets?) told\b|\btells? (what|how|of|which|why|whether|when|where|that|all|nothing)\b", "report, show, say"),
    (r"\b(is|are|was|were) none of\b", "does not belong to; invalid"),
    (r"\bit is none\b", "name what it is not"),
    (r"\bno more\b(?! (than|of|memory|files|work|data|bytes|room|input|space|rows|\w+s)\b)", "no longer, gone"),
    (r"(?<!virtual )(?<!state )(?<!real )\bmachines?\b(?![- ](id|ids|readable|type|types|check)\b)", "VM, or host"),
    (r"^what\b(?![^.]*\?)", "start with the actor or the thing"),
    (r"^of (a|an|the|what|one|all|those|these|its|each|every|two|both)\b", "start with the main point"),
    (r"^(with|by|from|for|in) what\b", "start with the main point"),
]
RULES = [(re.compile(pattern, re.I), hint) for pattern, hint in RULES]
QUOTED = re.compile(r"`[^`\n]*`|'[\w.-]+'|\"[\w.-]+\"")
SENTENCE = re.compile(r"(?:(?<=[.!?])\s+|\n\s*\n)")


def blank(match):
    return " " * len(match.group(0))


def c_parts(text, strings=True):
    """Comments and string literals of C, each with its line."""
    for found in re.finditer(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', text, re.S):
        part = found.group(0)
        line = text.count("\n", 0, found.start()) + 1
        if part.startswith("/*"):
            yield line, re.sub(r"^[ \t]*\*(?!/)", lambda m: blank(m), part[2:-2], flags=re.M)
        elif strings and part.startswith('"') and " " in part:
            yield line, part[1:-1]


def python_parts(text):
    """Comments and docstrings of Python."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return
    start = True
    for token, following in zip(tokens, tokens[1:]):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")
        elif token.type == tokenize.STRING and start and following.type == tokenize.NEWLINE:
            yield token.start[0], token.string.strip("rbuf\"'")
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            start = True
        elif token.type not in (tokenize.COMMENT, tokenize.ENCODING, tokenize.NL):
            start = False


def hash_parts(text):
    """Comments of shell, YAML and Meson; neighbouring lines are one part."""
    block, begin = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        found = re.match(r"\s*#+(?!!) ?(.*)", line)
        if found:
            begin = begin if block else number
            block.append(found.group(1))
        elif block:
            yield begin, "\n".join(block)
            block = []


def markdown_parts(text):
    """Without code, headings and the texts of links to headings."""
    yield 1, re.sub(r"^```.*?^```|^    [^\n]*|`[^`]*`|^#[^\n]*|<!--.*?-->|\[[^]\n]*\]\([^)\n]*#[^)\n]*\)", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                    text, flags=re.S | re.M)


def man_parts(text):
    """Text lines of mdoc. A macro is a name inside a sentence, or the end of a paragraph."""
    lines, literal = [], False
    for line in text.splitlines():
        if line.startswith(".Bd -literal"):
            literal = True
        elif line.startswith(".Ed"):
            literal = False
        if literal or re.match(r"\.(Sh|Ss|Pp|It|Bl|El|Bd|Ed|Dl|D1)\b|'", line):
            line = ""
        elif line.startswith("."):
            line = "NAME." if line.endswith(" .") else "NAME"
        lines.append(line)
    yield 1, "\n".join(lines)


KINDS = {".c": c_parts, ".h": c_parts, ".py": python_parts, ".md": markdown_parts, ".sh": hash_parts,
         ".yaml": hash_parts, ".build": hash_parts}


def parts_of(path, text):
    if path.parent.name == "man":
        return man_parts(text)
    if path.suffix in (".c", ".h") and "tests" in path.relative_to(ROOT).parts:
        return c_parts(text, strings=False)  # inputs, and messages as they are expected
    if path.suffix in KINDS:
        return KINDS[path.suffix](text)
    if text.startswith("#!") and "python" in text.split("\n", 1)[0]:
        return python_parts(text)
    return hash_parts(text) if text.startswith("#!") else []


def judge(path):
    try:
        text = path.read_text()
    except (UnicodeDecodeError, IsADirectoryError):
        return
    for line, part in parts_of(path, text):
        part = QUOTED.sub(blank, part)
        begin = 0
        for end in [m.end() for m in SENTENCE.finditer(part)] + [len(part)]:
            sentence = part[begin:end]
            lead = len(sentence) - len(sentence.lstrip(" \t\n-*|#0123456789.("))
            for pattern, hint in RULES:
                for found in pattern.finditer(sentence[lead:]):
                    at = line + part.count("\n", 0, begin + lead + found.start())
                    yield at, found.group(0).replace("\n", " "), hint
            begin = end


def tree():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and name != "tools/prose.py"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", action="store_true", help="print the number for each directory")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    counts = collections.Counter()
    for path in [f.resolve() for f in options.files] or tree():
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for line, words, hint in judge(path):
            counts[str(name.parent)] += 1
            if not options.count:
                print("%s:%d: '%s': %s" % (name, line, words, hint))
    if options.count:
        for name, number in sorted(counts.items()):
            print("%5d %s" % (number, name))
        print("%5d in all" % sum(counts.values()))
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
