"""A page of a search in headless Chromium."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest


def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    return found


def browsed(page: Path, *flags: str) -> str:
    """What Chromium prints of a page, which writes nothing to the console."""
    usual = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=8000 --enable-logging=stderr"
    )
    done = subprocess.run(
        [chromium(), *usual.split(), f"--user-data-dir={page.parent / 'profile'}", *flags, page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


_HELPERS = """
  const of = (id) => document.getElementById(id);
  const say = (id, text) => { const p = document.createElement("p"); p.id = id; p.textContent = text;
                              document.body.append(p); };
  const wins = (id) => say(id, of("who-wins").textContent);
  const limit = (value) => { of("limit-ms").value = value; of("limit-ms").dispatchEvent(new Event("change")); };
"""


def read(page: Path, script: str) -> dict[str, str]:
    """What a script says on the loaded page, by its `say(id, text)`; it has `of(id)`, `limit(ms)` and `wins(id)`.

    Spaces that do not break are given back as ordinary ones.
    """
    added = f'<script>addEventListener("load", () => {{{_HELPERS}{script}}});</script>'
    asked = page.with_name("asked.html")
    asked.write_text(page.read_text("utf-8").replace("</body>", f"{added}</body>"), "utf-8")
    source = browsed(asked, "--dump-dom").replace("&nbsp;", " ")
    return dict(re.findall(r'<p id="([^"]+)">(.*?)</p>', source, flags=re.DOTALL))
