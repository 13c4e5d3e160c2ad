"""The pictures of the documentation, taken while the demo runs.

    .venv/bin/python examples/demo_pictures.py                    into docs/screenshots
    .venv/bin/python examples/demo_pictures.py --into /tmp/look   elsewhere

It starts the demo, signs a browser in by the printed link, and waits for the countdown, which lasts seconds: the pages that show
it are open before it begins. Chromium is the one that CHROMIUM names, or else playwright's own.
"""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from demo_server import ROOT, Children, children, python, wait_for
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

DESK, PHONE = (1440, 1000, 1), (390, 844, 2)
"""Width, height, and pixels of the picture to a pixel of the page."""
LONGEST_SECONDS = 900.0
ENDED = ("finished", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Picture:
    """One file: which address, how it is looked at."""

    name: str
    is_run: bool = True
    theme: str = "light"
    language: str = "en"
    size: tuple[int, int, int] = DESK


COUNTDOWN = (Picture("countdown-light"), Picture("countdown-light-zh", language="zh"))
AT_THE_END = (
    Picture("runs-light", is_run=False),
    Picture("runs-dark", is_run=False, theme="dark"),
    Picture("runs-light-phone", is_run=False, size=PHONE),
    Picture("run-light"),
    Picture("run-light-zh", language="zh"),
    Picture("run-dark", theme="dark"),
    Picture("run-light-phone", size=PHONE),
)


@dataclass(frozen=True, slots=True)
class Photographer:
    """A signed-in browser on the demo's server."""

    browser: Browser
    url: str
    cookies: Any
    into: Path

    def open(self, picture: Picture, path: str) -> Page:
        """A page that shows what the picture is of."""
        width, height, scale = picture.size
        look: ViewportSize = {"width": width, "height": height}
        context = self.browser.new_context(
            base_url=self.url, storage_state=self.cookies, viewport=look, device_scale_factor=scale
        )
        kept = f'{{"theme": "{picture.theme}", "language": "{picture.language}"}}'
        context.add_init_script(f"if (location.protocol.startsWith('http')) localStorage.setItem('lossguard', '{kept}')")
        page = context.new_page()
        page.goto(path)
        return page

    def take(self, picture: Picture, page: Page) -> None:
        """The file, once what it is of has been drawn; then the page is closed."""
        shown = page.locator("figure .scatterlayer path.js-line" if picture.is_run else "table.runs tr[data-id]")
        shown.nth(1).wait_for(state="attached", timeout=60_000)
        page.locator("[data-live=live]").wait_for(timeout=60_000)
        page.screenshot(path=self.into / f"{picture.name}.png")
        page.context.close()


@contextmanager
def _demo(directory: Path) -> Iterator[Children]:
    """The demo, which stays up until it is told to end."""
    with children(directory / "out") as processes:
        demo = processes.start("demo", python(ROOT / "examples" / "demo.py", "--directory", directory / "demo"), {})
        try:
            yield processes
        finally:
            demo.send_signal(signal.SIGINT)
            try:
                demo.wait(timeout=20)  # it ends its own server and trainings
            except subprocess.TimeoutExpired:
                demo.terminate()


def _signed_in(browser: Browser, processes: Children, into: Path) -> Photographer:
    link = wait_for("the link", lambda: re.search(r"http://\S+/signin#\S+", processes.log("demo")), 120)[0]
    url = link.split("/signin")[0]
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    page.wait_for_url(f"{url}/")
    return Photographer(browser, url, context.storage_state(), into)


def _runs(page: Page) -> list[dict[str, Any]]:
    return list(page.request.get("/api/runs").json()["runs"])


def _guarded(page: Page) -> dict[str, Any] | None:
    """The run that is saved, once it trains."""
    return next((run for run in _runs(page) if "guarded" in run["run_id"] and run["step"]), None)


def _both_ended(page: Page) -> bool | None:
    runs = _runs(page)
    return True if len(runs) == 2 and all(run["state"] in ENDED for run in runs) else None


def main(into: Annotated[Path, typer.Option(help="Where the pictures go.")] = ROOT / "docs" / "screenshots") -> None:
    """Run the demo and take its pictures."""
    folder = tempfile.TemporaryDirectory(prefix="lossguard-pictures-")
    with folder as name, _demo(Path(name)) as processes, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        photographer = _signed_in(browser, processes, into)
        watch = photographer.open(AT_THE_END[0], "/")
        run = wait_for("the guarded run", lambda: _guarded(watch), LONGEST_SECONDS)
        path = f"/runs/{run['run_id']}"
        opened = [(picture, photographer.open(picture, path)) for picture in COUNTDOWN]
        for picture, page in opened:
            page.locator(".doing .clock").wait_for(timeout=LONGEST_SECONDS * 1000)
            photographer.take(picture, page)
        wait_for("the ends", lambda: _both_ended(watch), LONGEST_SECONDS, every=1.0)
        for picture in AT_THE_END:
            photographer.take(picture, photographer.open(picture, path if picture.is_run else "/"))


if __name__ == "__main__":
    typer.run(main)
