"""Writes the licence texts of everything that is linked into the Python package, for the wheel.

python crates/kinfolk-py/licences.py FILE
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENCE = re.compile(r"(?i)^(un)?licen[cs]e|^copying|^copyright|^notice")


def linked() -> list[dict]:
    """The packages that are linked: all that kinfolk-py depends on, but for tools that only run while it is built."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    is_macro = lambda id: any("proc-macro" in target["kind"] for target in packages[id]["targets"])
    found: set[str] = set()
    ahead = [id for id, package in packages.items() if package["name"] == "kinfolk-py"]
    while ahead:
        id = ahead.pop()
        if id not in found and not is_macro(id):
            found.add(id)
            for dependency in nodes[id]["deps"]:
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    ahead.append(dependency["pkg"])
    own = set(metadata["workspace_members"])
    return sorted((packages[id] for id in found - own), key=lambda package: (package["name"], package["version"]))


def texts(package: dict) -> dict[str, str]:
    """The licence files of a package, and of the C libraries that it brings along, by their paths."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [path for path in folder.rglob("*") if path.is_file() and LICENCE.match(path.name) and path.suffix != ".rs"]
    return {str(path.relative_to(folder)): path.read_text(errors="replace").strip() for path in sorted(files)}


def without_text(package: dict) -> dict[str, str]:
    """The licence of a package that names it and does not bring the text."""
    if "Apache-2.0" in package["license"]:
        return {"not in the package": (ROOT / "LICENSE-APACHE").read_text().strip()}
    if "MIT" not in package["license"]:
        sys.exit(f"{package['name']}: no licence text")
    holders = ", ".join(package["authors"]) or f"The authors of {package['name']}"
    text = (ROOT / "LICENSE-MIT").read_text().strip()
    return {"not in the package": re.sub(r"(?m)^Copyright.*$", f"Copyright (c) {holders}", text, count=1)}


def main(target: pathlib.Path) -> None:
    # Many packages have the same text: it is written once, below all that have it.
    owners: dict[str, list[str]] = {}
    for package in linked():
        name = f"{package['name']} {package['version']} ({package['license']})"
        for path, text in (texts(package) or without_text(package)).items():
            owners.setdefault(text, []).append(f"{name}: {path}")
    if not owners:
        sys.exit("nothing is linked")
    rust = "The standard library of Rust (MIT OR Apache-2.0)\nCopyright (c) The Rust Project Contributors"
    owners.setdefault((ROOT / "LICENSE-APACHE").read_text().strip(), []).append(rust)
    line = "=" * 80
    parts = [f"{line}\n" + "\n".join(names) + f"\n{line}\n\n{text}\n" for text, names in owners.items()]
    target.write_text("Kinfolk is linked with the following libraries.\n\n" + "\n".join(parts))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
