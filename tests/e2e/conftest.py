"""A real server process, a real Chromium and real trainings for the browser tests."""

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import forked
import httpx2
import pytest
from e2e_harness import FLAGS, Site, Training, Watched, end, environment, poll
from playwright.sync_api import Browser, Page, expect, sync_playwright

from dev import chromium

expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    ready_file = folder / "ready.json"
    variables = environment(
        LOSSGUARD_DATA_DIR=str(folder / "data"),
        LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS="127.0.0.1",
        LOSSGUARD_WEBHOOK_RETRY_SCALE="0.01",
    )
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--ready-file", str(ready_file)]
    server = forked.popen(command, env=variables, out=folder / "server.log")
    try:
        poll("the server", lambda: ready_file.exists() or server.poll() is not None, 60)
        assert server.poll() is None, (folder / "server.log").read_text()
        ready = json.loads(ready_file.read_text())
        variables["LOSSGUARD_PORT"] = str(urlsplit(ready["url"]).port)
        site = Site(ready["url"], Path(ready["agent_token_file"]).read_text().strip(), variables, httpx2.Client())
        operator = site.command_line("token", "create", "--role", "operator", "--name", "tests")
        with httpx2.Client(
            base_url=site.url, headers={"Authorization": f"Bearer {operator}"}, trust_env=False, timeout=20
        ) as site.api:
            yield site
        log = (folder / "server.log").read_text()
        assert "Traceback" not in log, log
    finally:
        end(server)


def start_training(site: Site, parent: Path, name: str = "tiny", **options: object) -> Training:
    run_id = f"{name}-{uuid.uuid4().hex[:8]}"
    folder, log = parent / run_id, parent / f"{run_id}.log"
    flags = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    command = [sys.executable, str(Path(__file__).with_name("tiny_training.py")), str(folder), "--run-id", run_id, *flags]
    variables = environment(
        LOSSGUARD_URL=site.url, LOSSGUARD_TOKEN=site.agent_token, LOSSGUARD_NAME=name, LOSSGUARD_PROJECT="e2e"
    )
    return Training(run_id, folder, forked.popen(command, env=variables, out=log), log)


@pytest.fixture
def train(site: Site, tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Starts a training; it is ended with the test."""
    started: list[Training] = []

    def start(name: str, **options: object) -> Training:
        started.append(start_training(site, tmp_path, name, **options))
        return started[-1]

    yield start
    for training in started:
        end(training.process)


@pytest.fixture(scope="session")
def nan_training(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """A training that has ended, with one NaN loss at step 17 of 40."""
    training = start_training(site, tmp_path_factory.mktemp("nan"), "nan", steps=40, step_seconds=0.02, nan_at=17)
    try:
        assert training.wait(120) == 0, training.log.read_text()
        poll("the end", lambda: site.run(training.run_id)["state"] == "finished")
        yield training
    finally:
        end(training.process)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ended with each module: while Playwright runs, its event loop keeps every other test from having one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def session_state(site: Site, browser: Browser) -> dict:
    """The cookies of a signed-in browser: a link is good once, so the tests share one sign-in."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.command_line("signin"))
    page.wait_for_url(f"{site.url}/")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def watched() -> Watched:
    """What the page of this test did that a page must not do."""
    return Watched()


@pytest.fixture
def page(site: Site, browser: Browser, session_state: dict, watched: Watched) -> Iterator[Page]:
    """A signed-in page whose behaviour is watched to its end."""
    context = browser.new_context(storage_state=session_state, base_url=site.url, viewport={"width": 1280, "height": 900})
    watched.follow(context)
    page = context.new_page()
    page.set_default_timeout(20_000)
    yield page
    context.close()
    assert watched.errors == []
    assert watched.hosts <= {urlsplit(site.url).netloc}
