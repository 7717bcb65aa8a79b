#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
The manual pages and the guide match the program.

HUTCH is the program, HUTCH_SOURCE the source tree (by default the one this file is in).
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("HUTCH_SOURCE") or pathlib.Path(__file__).parents[2]).resolve()
HUTCH = pathlib.Path(os.environ.get("HUTCH") or "build/src/cli/hutch").resolve()
PAGES = {"hutch 1": SOURCE / "man/hutch.1", "hutch-agent 5": SOURCE / "man/hutch-agent.5",
         "hutch-audit 5": SOURCE / "man/hutch-audit.5", "hutch-image 5": SOURCE / "man/hutch-image.5",
         "hutch-host 5": SOURCE / "man/hutch-host.5", "hutch-keys 5": SOURCE / "man/hutch-keys.5", "hutch-state 5": SOURCE / "man/hutch-state.5",
         "hutchd 8": SOURCE / "man/hutchd.8"}
GUIDE = SOURCE / "docs/POLICY.md"
README = SOURCE / "README.md"
SECRETS = SOURCE / "docs/SECRETS.md"
INVESTIGATE = SOURCE / "docs/INVESTIGATE.md"
CATALOGUE = SOURCE / "tests/attack/CATALOGUE.md"
ATTACKS = 181  # in the project's list; additional attacks have no number


def hutch(*args):
    env = dict(os.environ, HUTCH_CONFIG_PATH="")
    return subprocess.run([HUTCH, *args], env=env, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


# ---- the program ----

def commands(path=()):
    """{("config", "validate"): [("I", "include"), ...]}, from the help."""
    text = hutch("help", *path)
    options = re.findall(r"^  (?:-(\w), |    )--([\w-]+)", text, re.M)
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
    if not listed:
        return {path: options}
    below = {}
    for name in re.findall(r"^  (\S+)", listed[1], re.M):
        below |= commands((*path, name))
    return below


# ---- the pages ----

def lines(page):
    return page.read_text().splitlines()


def plain(source):
    """The words of mdoc source, without macros and the marks they print."""
    words = []
    for line in source:
        if line.startswith('.\\"'):
            continue
        if line.startswith("."):
            line = re.sub(r"^\.[A-Z][a-z]\b|\b(?:Ql|Cm|Ic|Pa|Fl|Ar|Op|Pq|Ns|Xo|Xc)\b", " ", line)
        words += line.replace(r"\ ", " ").replace(r"\&", "").split()
    return re.sub(r" ([.,;:])( |$)", r"\1\2", " ".join(words))


def entries(source, macro):
    """(title, body) for each '.It MACRO title'; a body ends at the next entry or heading."""
    title, body = None, []
    for line in source:
        start = re.match(rf"\.It {macro} ([\w.]+)$", line)
        if start or line.startswith((".Sh ", ".Ss ")):
            if title:
                yield title, body
            title, body = start and start[1], []
        else:
            body.append(line)
    if title:
        yield title, body


def headings(source, level):
    """{heading: lines below it}; the lines before the first heading are under ""."""
    found, at = {"": []}, ""
    for line in source:
        if line.startswith(f".{level} "):
            at = line[4:].strip('"')
            found[at] = []
        else:
            found[at].append(line)
    return found


def keys_of(source):
    """{key: body} of one part of hutch-agent(5): '.It Ic key', or '.Ss key' for a section."""
    keys = {name: body for name, body in headings(source, "Ss").items() if re.fullmatch(r"[a-z]+", name)}
    return keys | dict(entries(source, "Ic"))


# ---- examples ----

def page_examples(page):
    """("file", name, text) and ("session", text) of a page's EXAMPLES, in order."""
    block, name = None, None
    for line in headings(lines(page), "Sh")["EXAMPLES"]:
        named = re.match(r"\.Pa (\S+\.yaml)\b", line)
        if line.startswith(".Bd -literal"):
            block = []
        elif line == ".Ed":
            text = "\n".join(block) + "\n"
            yield ("session", text) if text.startswith("$ ") else ("file", name, text)
            block, name = None, None
        elif block is not None:
            block.append(line)
        elif named:
            name = named[1]


def guide_examples(page):
    """The same for a Markdown file: ```yaml blocks are the file named last, ```console blocks
    are sessions."""
    text, at = page.read_text(), 0
    for m in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        names = re.findall(r"`([\w/.-]+\.yaml)`", text[at:m.start()])
        if m[1] == "yaml":
            yield "file", names[-1] if names else None, m[2]
        elif m[1] == "console":
            yield "session", m[2]
        elif not (page == README and m[1] == "sh"):  # the quick start; CI runs it in a clean clone
            raise ValueError(f"{page.name}: a block that is neither yaml nor console: {m[0]!r}")
        at = m.end()


# ---- the catalogue of attacks ----

def attacks(table):
    """(numbers, remaining cells) of each row of a catalogue table: "3, 5 to 7" is 3, 5, 6 and 7."""
    for line in re.findall(r"^\| (?!#)(.*) \|$", table, re.M):
        numbers, *cells = re.split(r" ?\| ", line)
        yield [n for a, b in re.findall(r"(\d+)(?: to (\d+))?", numbers) for n in range(int(a), int(b or a) + 1)], cells


def files_of(cell, known):
    """The test files and directories that a cell names. A name without a directory is one of
    `known`."""
    for name in re.findall(r"[\w.-]*(?:/[\w.-]+)+|[\w-]+\.(?:py|c|yaml)\b|\bfuzz-[\w-]+", cell):
        found = [SOURCE / name] if "/" in name else [f for f in known if f.name in (name, f"{name}.c")]
        yield name, [f for f in found if f.exists()]


def matches(shown, printed):
    """'...' stands for the rest of a line, or, alone on a line, for lines."""
    pattern = "".join("(?:.*\n)*" if line.strip() == "..." else
                      ".*".join(map(re.escape, line.split("..."))) + "\n"
                      for line in shown.splitlines())
    return re.fullmatch(pattern, printed)


class Docs(unittest.TestCase):
    maxDiff = None

    def run_examples(self, examples, files=()):
        with tempfile.TemporaryDirectory() as tmp:
            bin_dir = pathlib.Path(tmp, "bin")
            bin_dir.mkdir()
            (bin_dir / "hutch").symlink_to(HUTCH)
            work = pathlib.Path(tmp, "work")
            work.mkdir()
            env = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": tmp, "HUTCH_CONFIG_PATH": ""}
            ran = 0
            for kind, *rest in [*files, *examples]:
                if kind == "file":
                    name, text = rest
                    self.assertIsNotNone(name, f"no file name stands before:\n{text}")
                    (work / name).parent.mkdir(parents=True, exist_ok=True)
                    (work / name).write_text(text)
                    continue
                for step in re.split(r"^\$ ", rest[0], flags=re.M)[1:]:
                    command, _, shown = step.partition("\n")
                    with self.subTest(command=command):
                        r = subprocess.run(["bash", "-c", command], cwd=work, env=env, text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                        self.assertIn(r.returncode, (0, 1), r.stdout)
                        if shown.strip() and not matches(shown, r.stdout):
                            self.assertEqual(shown, r.stdout)
                        ran += 1
            return ran

    def test_every_command_and_option_is_in_hutch_1(self):
        source = "\n".join(lines(PAGES["hutch 1"]))
        for path, options in commands().items():
            with self.subTest(command=" ".join(path)):
                name = re.escape(" ".join(path))
                entry = re.search(rf"^\.It (?:Xo\n\.)?Cm {name}(?: .*)?\n(?:(?!\.Xc|[A-Z]).*\n)*", source, re.M)
                self.assertTrue(entry, "no '.It Cm' entry")
                for letter, option in options:
                    spelled = rf"^\.It (?:Fl {letter}\b.* , )?Fl -{option}\b" if letter else rf"^\.It Fl -{option}\b"
                    self.assertRegex(source, re.compile(spelled, re.M))
                    if option != "help":
                        self.assertRegex(entry[0], rf"Fl (?:{letter or '-' + option}|-{option})\b")

    def test_hutch_1_has_no_command_that_is_not_there(self):
        known = {" ".join(path) for path in commands()}
        part = "\n".join(headings(lines(PAGES["hutch 1"]), "Sh")["COMMANDS"])
        # "completion bash" is a command and its argument.
        for name in re.findall(r"^\.It (?:Xo\n\.)?Cm ((?:[a-z]+ ?)+)", part, re.M):
            self.assertIn(name.strip(), known)

    def check_keys(self, documented, keys):
        for k in keys:
            with self.subTest(key=k["key"]):
                self.assertIn(k["key"], documented, "not in hutch-agent(5)")
                text = plain(documented[k["key"]])
                if "default" in k:
                    said = re.search(r"Default: (\S+(?:, \S+)*)\.(?: |$)", text)
                    self.assertTrue(said, f"no default in: {text}")
                    self.assertEqual(said[1].replace(",", ""), k["default"])
                elif k["expects"] != "a mapping":
                    self.assertNotIn("Default:", text)
                if "range" in k:
                    self.assertIn(f"from {k['range']}", text)
                if k["required"]:
                    self.assertRegex(text, r"Required\b")
                for word in k.get("words", []):
                    self.assertRegex("\n".join(documented[k["key"]]), rf"(?m)^\.(?:It )?Cm {word}\b")

    def test_every_key_is_in_hutch_agent_5(self):
        docs = json.loads(hutch("config", "docs", "--json"))
        page = headings(lines(PAGES["hutch-agent 5"]), "Sh")
        agent = keys_of(page["AGENT FILES"])
        self.check_keys(agent, docs["agent"])
        self.assertEqual(set(agent) - {k["key"] for k in docs["agent"]}, set(), "keys that do not exist")
        parts = headings(page["PRESET FILES"], "Ss")
        head = keys_of([".Ss preset", *parts["preset"]])
        for kind, preset in docs["presets"].items():
            with self.subTest(kind=kind):
                keys = head | keys_of(parts[f"{kind.capitalize()} presets"])
                self.check_keys(keys, preset["keys"])
                self.assertEqual(set(keys), {k["key"] for k in preset["keys"]})

    def test_every_level_and_layer_is_in_hutch_agent_5(self):
        words = [w for k in json.loads(hutch("config", "docs", "--json"))["agent"] for w in k.get("words", [])]
        self.assertIn("microvm", words)
        self.assertIn("seccomp", words)
        part = headings(lines(PAGES["hutch-agent 5"]), "Sh")["AGENT FILES"]
        self.assertEqual([w for w in words if f".It Cm {w}" not in part], [])

    def test_examples_of_hutch_agent_5(self):
        examples = list(page_examples(PAGES["hutch-agent 5"]))
        self.assertIn("shop.yaml", [e[1] for e in examples])
        self.assertGreater(self.run_examples(examples), 0)
        agent = next(e[2] for e in examples if e[1] == "shop.yaml")
        keys = json.loads(hutch("config", "docs", "--json"))["agent"]
        for section in (k["key"] for k in keys if "." not in k["key"] and k["key"] != "extends"):
            self.assertRegex(agent, rf"(?m)^{section}:", "the example has every section")

    def test_examples_of_hutch_1(self):
        agent = next(e[2] for e in page_examples(PAGES["hutch-agent 5"]) if e[1] == "shop.yaml")
        ran = self.run_examples(page_examples(PAGES["hutch 1"]), [("file", "agents/shop.yaml", agent)])
        self.assertGreater(ran, 0)

    def test_examples_of_the_guide(self):
        self.assertGreater(self.run_examples(guide_examples(GUIDE)), 0)

    def test_examples_of_the_readme(self):
        self.assertGreater(self.run_examples(guide_examples(README)), 3)

    def test_policies_of_the_page_on_secrets(self):
        """Its agent files, and the entry of each service. tests/egress runs its session."""
        texts = [e[2] for e in guide_examples(SECRETS) if e[0] == "file"]
        self.assertEqual(len(texts), 2)
        entries = re.findall(r"^\|[^|]+\| `(\{hosts: \[([^]]+)\].*\})` \|$", SECRETS.read_text(), re.M)
        self.assertGreater(len(entries), 5)
        texts += [f"agent: {{name: a, type: test}}\negress: {{domains: [{host}]}}\nsecrets: {{A_KEY: {entry}}}\n" for entry, host in entries]
        with tempfile.TemporaryDirectory() as work:
            for text in texts:
                with self.subTest(text=text):
                    name = re.search(r"name: ([\w-]+)", text)[1]
                    pathlib.Path(work, f"{name}.yaml").write_text(text)
                    r = subprocess.run([HUTCH, "config", "validate", f"{work}/{name}.yaml"], env={**os.environ, "HUTCH_CONFIG_PATH": ""},
                                       capture_output=True, text=True, check=False)
                    self.assertEqual((r.returncode, r.stderr), (0, ""), r.stdout)

    def test_commands_of_the_investigation(self):
        """test_sandbox_audit plays its night. This test checks that every command and option
        exists, and runs those that need no sandbox."""
        text, known = INVESTIGATE.read_text(), commands()
        shown = re.findall(r"^\$ (.*)$", text, re.M)
        self.assertGreater(len(shown), 10)
        for words in re.findall(r"\bhutch ((?:[a-z]+ ?)+)((?:-{1,2}[a-z]+ )*)", "\n".join(shown)):
            path = tuple(words[0].split())
            while path and path not in known:
                path = path[:-1]
            self.assertTrue(path, words)
            options = {f"-{letter}" for letter, _ in known[path]} | {f"--{name}" for _, name in known[path]}
            self.assertLessEqual(set(words[1].split()), options)
        evidence = re.findall(r"^\$ (.*)$", text[text.index("## Evidence"):], re.M)
        with tempfile.TemporaryDirectory() as work:
            env = dict(os.environ, HUTCH_AUDIT_DIR=f"{work}/audit", PATH=f"{pathlib.Path(HUTCH).parent}:{os.environ['PATH']}")
            for command in evidence:
                r = subprocess.run(["bash", "-c", command], cwd=work, env=env, text=True, capture_output=True, check=False)
                self.assertEqual(r.returncode, 0, command + r.stderr)
            self.assertIn("all good", r.stdout)

    def test_every_attack_is_in_the_catalogue(self):
        """Every row is in one of the two tables: with its tests and their control, or with the
        reason why there is none."""
        tested, excused = CATALOGUE.read_text().split("\n## Rows that cannot apply, and why\n")
        numbers = [{n for row, _ in attacks(table) for n in row} for table in (tested, excused)]
        self.assertEqual(numbers[0] & numbers[1], set(), "in both")
        self.assertEqual(numbers[0] | numbers[1], set(range(1, ATTACKS + 1)))
        for row, cells in attacks(excused):
            with self.subTest(row=row):
                self.assertEqual((len(row), len(cells), all(cells)), (1, 2, True))
        known = [f for f in (SOURCE / "tests").glob("*/*") if f.suffix in (".py", ".c")] + list((SOURCE / "presets").rglob("*.yaml"))
        for row, cells in attacks(tested):
            with self.subTest(row=row, what=cells[0][:60]):
                self.assertEqual((len(cells), all(cells)), (3, True))
                self.assertRegex(cells[2], r"\bcontrols?\b")
                self.check_tests(cells[2], known)

    def check_tests(self, cell, known):
        """Files and cases that a row names exist."""
        named = list(files_of(cell, known))
        self.assertTrue(named)
        self.assertEqual([name for name, found in named if not found], [], "no such file")
        text = "".join(f.read_text() for _, found in named for f in found if f.is_file())
        cases = re.findall(r"\btest_\w+\b(?!\.py)", cell)
        self.assertEqual([case for case in cases if not re.search(rf"\bdef {case}\(", text)], [], "no such case in these files")

    def test_references_lead_somewhere(self):
        for page in PAGES.values():
            for ref in re.findall(r"^\.Xr (\S+ \d)", page.read_text(), re.M):
                self.assertIn(ref, PAGES)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_has_no_complaint(self):
        for name, page in PAGES.items():
            with self.subTest(page=name):
                r = subprocess.run(["mandoc", "-T", "lint", "-W", "style", page], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                # The pages need not be installed; test_references_lead_somewhere checks the
                # references.
                said = [line for line in r.stdout.splitlines()
                        if not re.search(r"referenced manual not found: Xr (?:hutch 1|hutch-(?:agent|audit|host|image|keys|state) 5|hutchd 8)\b", line)]
                self.assertEqual(said, [])


if __name__ == "__main__":
    unittest.main()
