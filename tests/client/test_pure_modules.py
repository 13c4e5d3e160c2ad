"""The page's pure modules, tested by node where there is one and by Chromium where there is none: the same files, the same count.

Chromium gets `node:test` and `node:assert/strict` as the two small modules of `browser/`, through an import map.
"""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted(Path(__file__).parent.glob("*.test.mjs"))
LEAST_TESTS = 50

SHIMS = {"node:test": "/tests/client/browser/node-test.js", "node:assert/strict": "/tests/client/browser/node-assert.js"}

PAGE = """<!doctype html>
<script type="importmap">{"imports": %s}</script>
<script type="module">
import { results } from "node:test";
try {
  for (const name of %s) await import(`/tests/client/${name}`);
  window.outcome = await Promise.all(results);
} catch (e) { window.outcome = [`${e.stack ?? e}`]; }
</script>"""


class Files(http.server.SimpleHTTPRequestHandler):
    """The repository, and a page that runs the tests."""

    extensions_map = {  # noqa: RUF012 -- the base class has it as a plain dict
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".js": "text/javascript",
    }

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        body = (PAGE % (json.dumps(SHIMS), json.dumps([test.name for test in TESTS]))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(ROOT)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def node() -> str | None:
    """A node that has a test runner (18 or later)."""
    found = shutil.which("node")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    return found if int(version.lstrip("v").split(".")[0]) >= 18 else None


def chromium() -> str | None:
    """The browser of this machine; None leaves the choice to playwright, which fails clearly without one."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def in_node(program: str) -> int:
    done = subprocess.run([program, "--test", *map(str, TESTS)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^(?:#|\u2139) pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    return int(passed.group(1))


def in_chromium(address: str) -> int:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-background-networking"])
        page = browser.new_page()
        page.goto(address)
        page.wait_for_function("window.outcome !== undefined", timeout=30_000)
        outcome = page.evaluate("window.outcome")
        browser.close()
    failures = [line for line in outcome if line is not None]
    assert not failures, "\n".join(failures)
    return len(outcome)


def test_the_pure_modules_keep_their_rules(address: str) -> None:
    program = node()
    passed = in_node(program) if program else in_chromium(address)
    assert passed >= LEAST_TESTS


def test_the_browser_that_shows_the_page_agrees(address: str) -> None:
    assert in_chromium(address) >= LEAST_TESTS
