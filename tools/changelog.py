#!/usr/bin/env python3
"""Check the fragments of the changelog: each file in changelog/unreleased is one change, well-formed.

    tools/changelog.py          complain about each mistake; exit 1 when there is one
    tools/changelog.py --show   print them as the next release's notes

What a fragment looks like is said in changelog/README.md; a fragment is read here and nowhere else.
"""

import re
import sys
from pathlib import Path

UNRELEASED = Path(__file__).resolve().parent.parent / "changelog" / "unreleased"
KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed", "security": "Security"}
NAME = re.compile(rf"(?P<kind>{'|'.join(KINDS)})-(?P<topic>[a-z0-9]+(-[a-z0-9]+)*)\.md")
LONGEST_LINE = 140


def mistakes(path: Path) -> list[str]:
    found = []
    if not NAME.fullmatch(path.name):
        found.append(f"its name must be KIND-some-words.md, lower case, with KIND one of {', '.join(KINDS)}")
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if not text.strip():
        return [*found, "it is empty: say what a user sees, in the present tense"]
    if not text.endswith("\n") or text.endswith("\n\n") or not lines[0].strip():
        found.append("it must begin with its first line and end with one newline")
    if lines[0].startswith(("#", "-", "*")):
        found.append("it begins with a heading or a list: the first line is a plain sentence")
    if not lines[0].rstrip().endswith("."):
        found.append("its first line must be a whole sentence that ends with a full stop")
    if len(lines) > 1 and lines[1].strip():
        found.append("an empty line must follow the first sentence, which stands alone in the notes of a release")
    found += [
        f"line {number} is longer than {LONGEST_LINE} characters"
        for number, line in enumerate(lines, 1)
        if len(line) > LONGEST_LINE
    ]
    return found


def show(fragments: list[Path]) -> None:
    for kind, title in KINDS.items():
        chosen = [path for path in fragments if path.name.startswith(f"{kind}-")]
        if chosen:
            print(f"## {title}\n")
        for path in chosen:
            first, *rest = path.read_text(encoding="utf-8").splitlines()
            print(f"- {first}")
            print("\n".join(f"  {line}".rstrip() for line in rest) + "\n" if rest else "")


def main(arguments: list[str]) -> int:
    fragments = sorted(path for path in UNRELEASED.iterdir() if path.name != ".gitkeep")
    wrong = [
        f"{path.relative_to(UNRELEASED.parent.parent)}: {mistake}" for path in fragments for mistake in mistakes(path)
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    if "--show" in arguments:
        show(fragments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
