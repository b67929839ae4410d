"""The documentation as a site: every snippet runs, every link leads somewhere, and what is declared has its place."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
# These are run by test_docs.py, which also looks at what they print.
RUN_ELSEWHERE = {DOCS / "own-models.md", DOCS / "from-a-notebook.md"}

DATA = '\n[data]\nsource = "linear"\nclients = 6\n'
MODEL = '\n[model]\nkind = "linear"\n'
METHOD = '\n[[method]]\nname = "fedavg"\n'


def load_build() -> ModuleType:
    specification = importlib.util.spec_from_file_location("build", DOCS / "site" / "build.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["build"] = module
    specification.loader.exec_module(module)
    return module


build = load_build()


@pytest.fixture(scope="module")
def book(program: str) -> Any:
    return build.gather(build.Program(program))


@dataclass
class Block:
    """A fenced block, and the comment right above it, `<!-- key: value -->`."""

    page: Path
    line: int
    language: str
    text: str
    notes: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    fenced = r"(?P<notes>(?:^<!-- [^\n]*? -->\n)*)^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```"
    for match in re.finditer(fenced, text, re.MULTILINE | re.DOTALL):
        notes = dict(re.findall(r"^<!-- ([a-z ]+): (.*?) -->$", match["notes"], re.MULTILINE))
        line = text.count("\n", 0, match.start("language")) + 1
        yield Block(page, line, match["language"], match["text"], notes)


def masked(line: str) -> str:
    """A line of output in which numbers, and how wide columns are, do not matter."""
    return re.sub(r"[-–]?\d[\d.e+-]*|-{3,}|\s+", " ", line).replace(" ", "")


class Reader:
    """Somebody who types in a page from top to bottom."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self.environment = os.environ | {"PATH": f"{Path(program).parent}{os.pathsep}{os.environ['PATH']}"}
        self.names: dict[str, Any] = {}
        self.printed = ""
        for name in ("examples", "experiments", "docs"):
            (folder / name).symlink_to((ROOT / name).resolve())

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-e", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def read(self, block: Block) -> None:
        if block.language == "sh":
            self.check_commands(block)
        if "not run" in block.notes:
            assert len(block.notes["not run"]) > 10, f"{block}: why is it not run?"
            return
        match block.language:
            case "sh":
                done = self.shell(block.text)
                assert done.returncode == 0, f"{block}: {done.stderr}"
                self.printed = done.stdout + done.stderr
            case "python":
                exec(compile(block.text, str(block), "exec"), self.names)
            case "toml":
                self.check_experiment(block)
            case "text":
                self.check_output(block)
            case language:
                raise AssertionError(f"{block}: nobody runs {language!r}; say `<!-- not run: why -->` above it")

    def check_commands(self, block: Block) -> None:
        """Verbs, options and targets that a command names are there, also where it is not run."""
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE):
            assert target in targets, f"{block}: make {target}"
        for line in block.text.replace("\\\n", " ").splitlines():
            if match := re.match(r"kinfolk ([a-z]+)(.*)", line.split(" #")[0]):
                told = self.shell(f"kinfolk {match[1]} --help")
                assert told.returncode == 0, f"{block}: {told.stderr}"
                for option in re.findall(r"(?<=\s)--[a-z-]+", match[2]):
                    assert option in told.stdout or match[1] == "data", f"{block}: kinfolk {match[1]} {option}"

    def check_experiment(self, block: Block) -> None:
        """An experiment, or a part of one, is accepted."""
        if name := block.notes.get("file"):
            (self.folder / name).write_text(block.text, encoding="utf-8")
        text = block.text
        # What stands at the top of a file must come before its tables.
        for part, rest in (("[data]", DATA), ("[model]", MODEL), ("[[method]]", METHOD)):
            if not re.search(rf"^{re.escape(part)}", text, re.MULTILINE):
                text += rest
        (self.folder / "shown.toml").write_text(text, encoding="utf-8")
        shown = self.shell("kinfolk run shown.toml --show")
        assert shown.returncode == 0, f"{block}: {shown.stderr}"

    def check_output(self, block: Block) -> None:
        """Each line that a page shows is printed by the command above it, or stands in a file it names, up to numbers."""
        printed = self.printed + "".join(path.read_text() for path in (ROOT / "examples").glob("*.csv"))
        known = {masked(line) for line in printed.splitlines()}
        starts = tuple(known)
        for line in block.text.splitlines():
            wanted = masked(line)
            # A table may be shown without its last columns.
            assert wanted in known or line == "…" or any(found.startswith(wanted) for found in starts), f"{block}: {line}"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in RUN_ELSEWHERE], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snippet_of_a_page_runs(page: Path, folder: Path, program: str) -> None:
    reader = Reader(folder, program)
    for block in blocks(page):
        reader.read(block)


def test_a_command_that_does_not_exist_is_noticed(folder: Path, program: str) -> None:
    reader = Reader(folder, program)
    for language, text in [
        ("sh", "kinfolk run quickstart --sed 3\n"),
        ("sh", "kinfolk fti table.csv\n"),
        ("sh", "make tea\n"),
        ("toml", '[[method]]\nname = "ifca"\nclusters = 0\n'),
        ("text", "method  beauty\n"),
        ("perl", "print\n"),
    ]:
        with pytest.raises(AssertionError):
            reader.read(Block(DOCS / "start.md", 1, language, text, {}))


def slug(heading: str) -> str:
    """The anchor of a heading, as mdBook and code forges make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


def test_every_link_and_anchor_resolves(book: Any) -> None:
    prose = {name: "".join(p for is_prose, p in build.outside_code(text) if is_prose) for name, text in book.texts.items()}
    # Code in a heading is part of its anchor.
    headings = {
        name: {slug(title) for title in re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)}
        for name, text in book.texts.items()
    }
    for name, text in prose.items():
        for _, _, address in build.LINK.findall(text):
            target, _, anchor = address.partition("#")
            if re.match(r"[a-z]+:", address) or not anchor:
                continue
            page = os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else name
            assert anchor in headings.get(page, {anchor}), f"{name}: {address}"


def test_links_of_the_readme_and_its_neighbours_lead_to_files() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("*.md"), *(ROOT / "crates").glob("*/README.md")]:
        for is_prose, text in build.outside_code(page.read_text(encoding="utf-8")):
            for _, _, address in build.LINK.findall(text) if is_prose else []:
                target = address.partition("#")[0]
                if target and not re.match(r"[a-z]+:", target):
                    assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {address}"


def test_every_method_has_a_page_with_its_idea_and_its_settings(book: Any, program: str) -> None:
    methods = json.loads(subprocess.run([program, "list", "methods", "--json"], capture_output=True, check=True).stdout)
    assert len(methods) > 20
    for method in methods:
        name = build.method_page_name(method["name"])
        text = book.texts[name]
        assert text.startswith(f"# {method['name']}\n"), name
        assert "## How it works" in text, f"{name}: the head of its file says nothing"
        for setting in method["settings"]:
            assert f"| `{setting['name']}` |" in text, f"{name}: {setting['name']}"
        assert f"]({name})" in book.texts["SUMMARY.md"]
        assert f"[{method['name']}]({name.removeprefix('methods/')})" in book.texts["methods/index.md"]
    by_hand = {path.name for path in (DOCS / "methods").glob("*.md")}
    assert any(build.method_page_name(method["name"])[8:] not in by_hand for method in methods), "a page needs no part by hand"


def test_everything_declared_is_on_a_page(book: Any, program: str) -> None:
    for kind, page in [("models", "models.md"), ("datasets", "datasets.md"), ("files", "run-folder.md")]:
        for entry in json.loads(subprocess.run([program, "list", kind, "--json"], capture_output=True, check=True).stdout):
            assert entry["name"] in book.texts[page], (page, entry["name"])
            for setting in entry["settings"]:
                assert f"| `{setting['name']}` |" in book.texts[page], (page, entry["name"], setting["name"])
            for column in entry.get("columns", []):
                assert f"| `{column['name']}` |" in book.texts[page], (page, entry["name"], column["name"])
    for verb in build.Program(program).verbs():
        assert f"## kinfolk {verb}\n" in book.texts["command-line.md"]


def test_concepts_explains_every_word_of_a_table(program: str) -> None:
    """The headings of the tables that the program prints and the pages show, the metrics, and how a method can end."""
    concepts = (DOCS / "concepts.md").read_text(encoding="utf-8")
    explained = "\n".join(re.findall(r"^### (.*)", concepts, re.MULTILINE)).lower()
    source = ROOT / "crates/kinfolk/src"

    def titles(path: Path) -> set[str]:
        code = path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0]
        found = re.findall(r'\.(?:words|numbers|fill)\((?:format!\()?"([^"]+)"', code)
        return {re.sub(r"\{\w*\}| ?%", "", title).strip(" ()").lower() for title in found}

    results = titles(source / "report/table.rs")
    assert {"misclustering", "ari", "worst decile"} <= results
    top = json.loads(subprocess.run([program, "list", "sections", "top", "--json"], capture_output=True, check=True).stdout)
    metric = next(setting for setting in top["settings"] if setting["name"] == "metric")
    metrics = set(metric["wanted"].removeprefix("one of ").split(", ")) - {"auto"}
    for word in results | metrics:
        assert word in explained, f"{word}: no heading of concepts.md"
    others = {title for path in [*source.glob("fit/**/*.rs"), *source.glob("report/**/*.rs")] for title in titles(path)}
    for name in ("assign", "reproduce"):
        others |= titles(ROOT / f"crates/kinfolk-cli/src/commands/{name}.rs")
    others |= set(re.findall(r'"([a-z-]+)"', re.search(r"const STATUSES.*", (source / "record/summary.rs").read_text())[0]))
    # What explains itself: what was understood of a table, and points.
    plain = {"column", "what it is", "kinds", "missing", "what is done", "points", "mean", "rows", "clients", "clusters"}
    for word in others - plain:
        assert re.search(rf"(?<!\w){re.escape(word)}(?!\w)", concepts, re.IGNORECASE), f"{word}: not in concepts.md"


def test_a_site_with_a_dead_link_is_refused(folder: Path) -> None:
    (folder / "index.html").write_text('<h1 id="top">.</h1><a href="other.html#there">.</a><a href="#top">.</a>')
    (folder / "other.html").write_text('<h1 id="there">.</h1>')
    assert build.check(folder) == []
    page = '<a href="gone.html">.</a><a href="other.html#gone">.</a><script src="https://example.org/x.js"></script>'
    (folder / "index.html").write_text(page)
    assert len(build.check(folder)) == 3
