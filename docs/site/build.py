"""Builds the documentation as a site: `make docs`.

    build.py --program target/debug/kinfolk --out target/site [--mdbook target/mdbook/bin/mdbook] [--api target/doc]

Pages are written by hand in `docs/`. What is declared in the code is taken from the program (`kinfolk list … --json`, `--help`) and
from the comment at the head of a method's file, so that a new method, setting, column or option is on the site by itself.
All of it is put together in `OUT/pages`; mdBook makes `OUT/book` from that; then every link of the result is checked.
Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
METHODS = ROOT / "crates/kinfolk/src/methods"
EXPERIMENTS = ROOT / "crates/kinfolk-papers/experiments"
ARENA = ROOT / "crates/kinfolk-papers/src/arena/tables"

PAGES_ELSEWHERE = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "crates/kinfolk/assets/README.md": "credits.md",
}
"""Pages that lie outside `docs/`, and where they are on the site. Those of `experiments/` come in addition."""

MODELS_FOR = {
    "descent": "every model that is trained by steps, [clients of your own](../own-models.md) among them",
    "rows": "every model of Kinfolk's that is trained by steps; not clients of your own, whose rows it cannot see",
    "linear": "`linear`, `logistic`, `softmax`",
    "minimiser": "`linear`, `logistic`",
    "quadratic": "`linear`",
    "mixture": "`gaussian-mixture`, `regression-mixture`",
    "sharedscatter": "`regression-mixture`, and `gaussian-mixture` with one covariance for all components",
}
"""What a method wants of a model, in words."""


class Fault(Exception):
    """Something in the sources of the site that is not as it must be."""


# --- What the program declares -----------------------------------------------------------------------------------------


@dataclass
class Program:
    """The command line, asked for what it declares."""

    path: str
    api: Path | None = None
    """Rust's API as `cargo doc` has written it, where it is to be part of the site."""
    listed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def says(self, *arguments: str) -> str:
        done = subprocess.run([self.path, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Fault(f"kinfolk {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def declared(self, what: str) -> list[dict[str, Any]]:
        if what not in self.listed:
            self.listed[what] = json.loads(self.says("list", what, "--json"))
        return self.listed[what]

    def verbs(self) -> list[str]:
        """The verbs, with those below them (`data get`)."""

        def below(*verb: str) -> list[str]:
            commands = re.search(r"^Commands:\n((?:  .*\n)+)", self.says(*verb, "--help"), re.MULTILINE)
            names = re.findall(r"^  (\S+)", commands[1], re.MULTILINE) if commands else []
            return [" ".join([*verb, name]) for name in names if name != "help"]

        return [verb for first in below() for verb in [first, *below(first)]]


def cell(text: str) -> str:
    """A text that may stand in the cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def quoted(text: str) -> str:
    return f"`{cell(text)}`" if text else ""


def settings_table(settings: list[dict[str, Any]]) -> str:
    if not settings:
        return "It has no settings.\n"
    lines = ["| setting | default | values | what it does |", "|---|---|---|---|"]
    for setting in settings:
        default = "**required**" if setting["required"] else quoted(setting.get("default", ""))
        what = cell(setting["help"])
        if only := setting.get("only_with"):
            choice = " or ".join(quoted(f"{only['setting']} = {value}") for value in only["values"])
            what += f" (with {choice})"
        lines.append(f"| {quoted(setting['name'])} | {default} | {cell(setting['wanted'])} | {what} |")
    return "\n".join(lines) + "\n"


# --- Methods ----------------------------------------------------------------------------------------------------------


def method_source(name: str) -> Path:
    """The file that declares a method, or the one that explains it where its settings lie apart."""
    declaration = f'const NAME: &str = "{name}";'
    for path in sorted(METHODS.rglob("*.rs")):
        if declaration in path.read_text(encoding="utf-8"):
            return path if path.name != "settings.rs" else path.parent / "mod.rs"
    raise Fault(f"{name}: no file below {METHODS} declares it")


def head_comment(path: Path) -> str:
    """The `//!` comment at the head of a file, as Markdown."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//!"):
            break
        lines.append(line[3:].removeprefix(" "))
    text = "\n".join(lines).strip()
    text = re.sub(r"\[(`[^`\]]+`)\](?:\([^)]*\))?", r"\1", text)  # links within the code lead nowhere here
    pieces = [re.sub(r"^(#+) ", r"#\1 ", piece, flags=re.MULTILINE) if is_prose else piece for is_prose, piece in outside_code(text)]
    return "".join(pieces).replace("```\nuse ", "```rust\nuse ")


def method_page_name(name: str) -> str:
    return f"methods/{name.replace('+', '-plus')}.md"


GROUPS = [
    "Finding clusters",
    "In clusters that are given",
    "Over everybody, or over clusters found before",
    "One model, or one for each client",
    "Mixtures: kinds of rows",
    "To compare with",
]
"""Methods by what their declarations say, in this order."""


def group_of(method: dict[str, Any]) -> str:
    names = {setting["name"] for setting in method["settings"]}
    if method["paper"].startswith("baseline"):
        return "To compare with"
    if method["wants"] in ("mixture", "sharedscatter"):
        return "Mixtures: kinds of rows"
    if "groups" in names:
        return "In clusters that are given"
    if method["clusters"]:
        return "Finding clusters"
    return "Over everybody, or over clusters found before" if "over" in names else "One model, or one for each client"


def grouped_methods(program: Program) -> dict[str, list[dict[str, Any]]]:
    methods = program.declared("methods")
    groups = {group: [method for method in methods if group_of(method) == group] for group in GROUPS}
    return {group: methods for group, methods in groups.items() if methods}


def measured_in() -> dict[str, list[str]]:
    """The experiments in which a method takes part, by its name."""
    found: dict[str, list[str]] = {}
    for path in sorted(EXPERIMENTS.glob("*/*.toml")):
        for name in re.findall(r'^name = "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            if path.parent.name not in found.setdefault(name, []):
                found[name].append(path.parent.name)
    for path in sorted(ARENA.glob("*.toml")):
        for name in re.findall(r'^name = "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            if "arena" not in found.setdefault(name, []):
                found[name].append("arena")
    return found


def method_page(method: dict[str, Any], experiments: list[str]) -> str:
    name = method["name"]
    summary = method["summary"][0].upper() + method["summary"][1:]
    by_hand = DOCS / method_page_name(name)
    parts = [f"# {name}\n", f"{summary}.\n"]
    facts = [f"**From**: {cell(method['paper'])}"]
    facts.append(f"**Models**: {MODELS_FOR.get(method['wants'], method['wants'])}")
    if method["clusters"]:
        facts.append("**Clusters**: yes; a later method of the same run may start from them")
    if experiments:
        # A README may be missing while an experiment is being written.
        links = [f"[{x}](../experiments/{x}.md)" for x in experiments if (EXPERIMENTS / x / "README.md").is_file()]
        if links:
            facts.append(f"**Measured in**: {', '.join(links)}")
    parts.append("\n".join(f"- {fact}" for fact in facts) + "\n")
    if by_hand.is_file():
        text = by_hand.read_text(encoding="utf-8")
        parts.append(re.sub(r"\A# .*\n+", "", text))
    source = method_source(name)
    if comment := head_comment(source):
        parts.append(f"## How it works\n\n{comment}\n")
    parts.append(f"## Settings\n\n{settings_table(method['settings'])}")
    where = source.relative_to(ROOT)
    parts.append(f"Printed by `kinfolk list methods {name}`. The code is in `{where}`.\n")
    return "\n".join(parts)


# --- What stands in a page as `<!-- generated: … -->` ----------------------------------------------------------------------


def generated(what: str, program: Program) -> str:
    match what.split():
        case ["settings", kind, name]:
            entry = next((entry for entry in program.declared(kind) if entry["name"] == name), None)
            if entry is None:
                raise Fault(f"there is no {name} among {kind}")
            return settings_table(entry["settings"])
        case ["every", kind]:
            parts = []
            for entry in program.declared(kind):
                parts.append(f"## {entry['name']}\n\n{entry['summary'][0].upper()}{entry['summary'][1:]}.\n")
                parts.append(settings_table(entry["settings"]))
            return "\n".join(parts)
        case ["overview", kind]:
            lines = ["| name | what it is |", "|---|---|"]
            lines += [f"| `{entry['name']}` | {cell(entry['summary'])} |" for entry in program.declared(kind)]
            return "\n".join(lines) + "\n"
        case ["columns"]:
            parts = []
            for entry in program.declared("files"):
                if columns := entry.get("columns"):
                    parts.append(f"### {entry['name']}\n\n| column | what it is |\n|---|---|")
                    parts[-1] += "".join(f"\n| `{column['name']}` | {cell(column['help'])} |" for column in columns)
                    parts[-1] += "\n"
            return "\n".join(parts)
        case ["methods"]:
            parts = []
            for group, methods in grouped_methods(program).items():
                parts.append(f"**{group}**\n\n| method | what it does | from |\n|---|---|---|")
                for method in methods:
                    link = method_page_name(method["name"]).removeprefix("methods/")
                    row = f"\n| [{method['name']}]({link}) | {cell(method['summary'])} | {cell(method['paper'])} |"
                    parts[-1] += row
                parts[-1] += "\n"
            return "\n".join(parts)
        case ["api"]:
            return "**[The API's documentation](api/kinfolk/index.html)** is part of this site.\n" if program.api else ""
        case ["rust", "tour"]:
            return head_comment(ROOT / "crates/kinfolk/src/lib.rs")
        case ["verbs"]:
            parts = []
            for verb in program.verbs():
                parts.append(f"## kinfolk {verb}\n\n```text\n{program.says(*verb.split(), '--help').strip()}\n```\n")
            return "\n".join(parts)
    raise Fault(f"nothing generates {what!r}")


# --- Putting the pages together -----------------------------------------------------------------------------------------

LINK = re.compile(r"(?<!\\)(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\))?)\)")
CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1`*[ \t]*$|^(?: {4}|\t)[^\n]*$|(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL)


def outside_code(text: str) -> list[tuple[bool, str]]:
    """A Markdown text in pieces, each with whether it is prose."""
    pieces, end = [], 0
    for match in CODE.finditer(text):
        pieces += [(True, text[end : match.start()]), (False, match[0])]
        end = match.end()
    return [*pieces, (True, text[end:])]


def experiment_pages() -> dict[str, str]:
    pages = {}
    for path in sorted(EXPERIMENTS.glob("*/*.md")):
        folder = path.parent.name
        name = f"{folder}.md" if path.name == "README.md" else f"{folder}-{path.name}"
        pages[str(path.relative_to(ROOT))] = f"experiments/{name}"
    return pages


@dataclass
class Book:
    """The pages of the site: where each comes from, and its text."""

    texts: dict[str, str] = field(default_factory=dict)
    origins: dict[str, Path] = field(default_factory=dict)
    copies: dict[str, Path] = field(default_factory=dict)
    """Files that are linked and are no pages."""

    def add(self, name: str, origin: Path, text: str) -> None:
        self.texts[name] = text
        self.origins[name] = origin

    def page_of(self, path: Path) -> str | None:
        return next((name for name, origin in self.origins.items() if origin == path), None)

    def rewritten(self, name: str) -> str:
        """A page's text with its links as they must be on the site, and drawings in place."""
        text, pieces, at = self.texts[name], [], 0
        while True:
            # Labels of links may have code in them, and code what looks like a link: what begins first is what it is.
            found = [match for match in (LINK.search(text, at), CODE.search(text, at)) if match]
            if not found:
                return "".join(pieces) + text[at:]
            match = min(found, key=lambda match: match.start())
            pieces += [text[at : match.start()], self.link(name, match) if match.re is LINK else match[0]]
            at = match.end()

    def link(self, name: str, match: re.Match[str]) -> str:
        picture, label, address = match.groups()
        if re.match(r"[a-z]+:", address) or address.startswith(("#", "api/")):
            return match[0]
        address, _, anchor = address.partition("#")
        # A page that is made here links to its neighbours on the site, all others to files of the repository.
        beside = os.path.normpath(os.path.join(os.path.dirname(name), address))
        target = beside if beside in self.texts else None
        if target is None:
            path = (self.origins[name].parent / urllib.parse.unquote(address)).resolve()
            if path.is_dir():
                path = path / "README.md"
            if not path.is_file() or not path.is_relative_to(ROOT):
                raise Fault(f"{name}: there is no {match[3]}")
            if path == ROOT / "README.md":
                path = DOCS / "start.md"
            if picture and path.suffix == ".svg":
                return drawing(path, label)
            target = self.page_of(path)
            if target is None:
                target = f"files/{path.relative_to(ROOT)}"
                if path.suffix == ".md":
                    raise Fault(f"{name}: {path.relative_to(ROOT)} is linked, and no page of the site")
                self.copies[target] = path
        relative = os.path.relpath(target, os.path.dirname(name) or ".")
        return f"{picture}[{label}]({relative}{'#' + anchor if anchor else ''})"


def drawing(path: Path, label: str) -> str:
    """A drawing as part of the page, so that it takes the theme's colours."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<\?xml.*?\?>|<!--.*?-->|<style>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"\n\s*", "\n", text.strip())
    text = text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
    return f'\n<figure class="drawing">\n{text}\n</figure>\n'


def summary(program: Program, book: Book) -> str:
    """The contents: as in `docs/SUMMARY.md`, with the pages that follow from the code."""
    lines = []
    for line in (DOCS / "SUMMARY.md").read_text(encoding="utf-8").splitlines():
        match line.strip():
            case "<!-- methods -->":
                indent = line[: len(line) - len(line.lstrip())]
                for group, methods in grouped_methods(program).items():
                    lines.append(f"{indent}- [{group}]()")
                    lines += [f"{indent}  - [{m['name']}]({method_page_name(m['name'])})" for m in methods]
            case "<!-- experiments -->":
                indent = line[: len(line) - len(line.lstrip())]
                for name in sorted(name for name in book.texts if name.startswith("experiments/")):
                    title = re.search(r"^# (.*)", book.texts[name], re.MULTILINE)
                    lines.append(f"{indent}- [{title[1] if title else name}]({name})")
            case _:
                lines.append(line)
    return "\n".join(lines) + "\n"


def gather(program: Program) -> Book:
    book = Book()
    for path in sorted(DOCS.rglob("*.md")):
        name = str(path.relative_to(DOCS))
        if name != "SUMMARY.md":
            book.add(name, path, path.read_text(encoding="utf-8"))
    for origin, name in (PAGES_ELSEWHERE | experiment_pages()).items():
        book.add(name, ROOT / origin, (ROOT / origin).read_text(encoding="utf-8"))
    experiments = measured_in()
    known = {method_page_name(method["name"]) for method in program.declared("methods")}
    for name in sorted(name for name in book.texts if name.startswith("methods/") and name not in known):
        if name != "methods/index.md":
            raise Fault(f"docs/{name} is of a method that does not exist")
    for method in program.declared("methods"):
        name = method_page_name(method["name"])
        book.add(name, DOCS / name, method_page(method, experiments.get(method["name"], [])))
    for name, text in book.texts.items():
        book.texts[name] = re.sub(r"<!-- generated: (.*?) -->", lambda match: generated(match[1], program), text)
    contents = summary(program, book)
    listed = re.findall(r"\]\(([^)]+\.md)\)", contents)
    if missing := sorted(set(book.texts) - set(listed)):
        raise Fault(f"not in docs/SUMMARY.md: {', '.join(missing)}")
    if unknown := sorted(set(listed) - set(book.texts)):
        raise Fault(f"docs/SUMMARY.md names pages that do not exist: {', '.join(unknown)}")
    if twice := sorted({name for name in listed if listed.count(name) > 1}):
        raise Fault(f"docs/SUMMARY.md names twice: {', '.join(twice)}")
    book.texts = {name: book.rewritten(name) for name in list(book.texts)}
    book.texts["SUMMARY.md"] = contents
    return book


def write(book: Book, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    for name, text in book.texts.items():
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(text, encoding="utf-8")
    for name, path in book.copies.items():
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, pages / name)
    for name in ("book.toml", "kinfolk.css"):
        shutil.copyfile(DOCS / "site" / name, folder / name)


# --- Checking the result ------------------------------------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """The ids of a page, and all that it refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.ids |= {value for key in ("id", "name") if (value := values.get(key))}
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)
        elif target := values.get("src") or (values.get("href") if tag == "link" else None):
            self.loaded.append(target)


def check(folder: Path) -> list[str]:
    """What is wrong with the links of a site: targets and anchors that are missing, and what the network would be needed for."""
    folder = folder.resolve()
    pages: dict[Path, Links] = {}

    def in_api(path: Path) -> bool:
        """What rustdoc writes, it checks itself."""
        return path.is_relative_to(folder / "api")

    def read(path: Path) -> Links:
        if path not in pages:
            pages[path] = Links()
            pages[path].feed(path.read_text(encoding="utf-8"))
        return pages[path]

    faults = []
    # The page for addresses that are not there is for a server, and all on one page repeats what is checked elsewhere.
    apart = {folder / "404.html", folder / "print.html", folder / "toc.html"}
    for path in sorted(path for path in folder.rglob("*.html") if path not in apart and not in_api(path)):
        page = read(path)
        for target in [*page.links, *page.loaded]:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loaded and parts.scheme != "data":
                    faults.append(f"{path.relative_to(folder)} loads {target}")
                continue
            found = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if found.is_dir():
                found = found / "index.html"
            if not found.is_file():
                faults.append(f"{path.relative_to(folder)}: there is no {target}")
            elif parts.fragment and found.suffix == ".html" and not in_api(found):
                if urllib.parse.unquote(parts.fragment) not in read(found).ids:
                    faults.append(f"{path.relative_to(folder)}: there is no {target}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the documentation as a site")
    parser.add_argument("--program", required=True, help="the program kinfolk, which says what is declared")
    parser.add_argument("--out", required=True, type=Path, help="folder for the pages and the site")
    parser.add_argument("--mdbook", help="the program mdbook; without it the pages are put together and checked as far as that goes")
    parser.add_argument("--api", type=Path, help="folder with the Rust API's documentation, to be part of the site")
    arguments = parser.parse_args()
    try:
        book = gather(Program(arguments.program, arguments.api))
    except Fault as fault:
        print(f"docs: {fault}", file=sys.stderr)
        return 1
    write(book, arguments.out)
    if not arguments.mdbook:
        return 0
    subprocess.run([arguments.mdbook, "build", str(arguments.out)], check=True)
    site = arguments.out / "book"
    if arguments.api:
        shutil.copytree(arguments.api, site / "api", dirs_exist_ok=True)
    faults = check(site)
    for text in faults:
        print(f"docs: {text}", file=sys.stderr)
    if not faults:
        print(f"site: {site / 'index.html'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
