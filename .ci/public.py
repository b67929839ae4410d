"""Counts what the library's documentation shows, and fails above a bound: `python .ci/public.py target/doc/kinfolk`.

Counted are items and the functions of types and traits. Structs of settings and what they are made of are counted apart, since there is
one for every method, model and source.
"""

import re
import sys
from pathlib import Path

MOST = 286

pages = Path(sys.argv[1])
items = re.findall(r'<li><a href="([^"#]+)"', (pages / "all.html").read_text())
settings = [item for item in items if "/options/" in item or re.search(r"\w+Settings\.html$", item)]
count = 0
for item in set(items) - set(settings):
    # What follows the own functions of an item comes from traits of others.
    own = re.split(r'id="(?:trait|synthetic|blanket)-implementations|id="(?:foreign-impls|implementors)', (pages / item).read_text())[0]
    count += 1 + len(set(re.findall(r'<section id="((?:ty)?method\.[^"]+)"', own)))
print(f"the library shows {count} items and functions, and {len(settings)} of settings beside them")
if count > MOST:
    sys.exit(f"want at most {MOST}; what only this workspace needs is pub(crate), or #[doc(hidden)]")
