"""Networks that fail, between the agent and a real server: refused, silent, cut, reset, slow, without names."""

import random
import socket
import statistics
import threading
import time

import psutil
from fault_proxy import FaultProxy, Harm
from faults_kit import began, differences, new_monitor, value_at, wait, whole
from figures import patience

from trainer_agent.config import Config
from trainer_agent.sending import sender, transport
from trainer_agent.sending.transport import HttpTransport, Meaning
from trainer_agent.wire.messages import RunStart
from trainer_agent.wire.vocabulary import EndReason

SIX = ("train/loss", "train/grad_norm", "amp/loss_scale", "amp/overflow", "train/learning_rate", "perf/step_seconds")


def log_steps(monitor, first: int, last: int, pause_every: int = 500) -> None:
    """Six series a step; now and then the writer gets its turn, as it does in a training."""
    for step in range(first, last + 1):
        monitor.log(dict.fromkeys(SIX, 0.5) | {"train/loss": value_at(step)}, step)
        if step % pause_every == 0:
            time.sleep(0.03)


def test_f1_a_server_that_refuses_for_long_gets_everything_later(fault_server, watched, quick, figure):
    """Ten minutes of refused connections are scaled down to the records of ten minutes at 20 steps a second, logged at once.

    How fast they are sent is for `benchmarks.catch_up` to judge; here the server's CPU time alone is held to the bar.
    """
    records = whole(12_000, 6_000)
    with FaultProxy(fault_server.url) as proxy:
        proxy.refuses = True
        monitor = watched(proxy.url, fault_server.token)
        log_steps(monitor, 1, records)
        assert not monitor.flush(0.5)
        wait(lambda: monitor.spool.last_seq > records)
        proxy.refuses = False
        wait(lambda: proxy.up_bytes, 60)
        start, cpu = time.monotonic(), fault_server.cpu_seconds()
        assert monitor.flush(120)
        seconds, cpu = time.monotonic() - start, fault_server.cpu_seconds() - cpu
    told = differences(fault_server.points(monitor.start.run_id), records)
    figure("F1", "points lost, doubled, altered or invented", sum(told.values()), at_most=0)
    figure("F1", "points a second while catching up, on a machine as busy as it was", records * len(SIX) / seconds)
    figure("F1", "points a second of the server's CPU time", records * len(SIX) / cpu, at_least=5000 / patience(1.0))


def test_f2_a_server_that_never_answers_costs_the_training_nothing(fault_server, watched, figure, monkeypatch):
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 0.4)
    monkeypatch.setattr(transport, "EXCHANGE_SECONDS", 0.5)
    with FaultProxy(fault_server.url) as proxy:
        proxy.hangs = True
        monitor = watched(proxy.url, fault_server.token)
        wait(lambda: proxy.open)
        took = []
        for step in range(1, 10_001):
            begin = time.perf_counter()
            monitor.log({"train/loss": value_at(step)}, step)
            took.append(time.perf_counter() - begin)
            if step % 200 == 0:
                time.sleep(0.01)
        figure("F2", "99th percentile of log()", statistics.quantiles(took, n=100)[98] * 1e6, at_most=100, unit="us")
        figure("F2", "sockets open", sockets_to(proxy.port), at_most=2)
        begin = time.monotonic()
        monitor.end(EndReason.FINISHED, 10_000)
        figure("F2", "seconds to leave", time.monotonic() - begin, at_most=patience(5.0), unit="s")


def sockets_to(port: int) -> int:
    """Connections of this process to a port, as the system counts them."""
    found = psutil.Process().net_connections("tcp")
    return sum(bool(each.raddr) and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in found)


def test_f2_a_server_that_falls_silent_in_mid_run_is_tried_on_one_connection(fault_server, watched, figure, monkeypatch):
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(transport, "EXCHANGE_SECONDS", 0.4)
    with FaultProxy(fault_server.url) as proxy:
        monitor = watched(proxy.url, fault_server.token)
        log_steps(monitor, 1, 100)
        assert monitor.flush(30)
        proxy.hangs = True
        seen, step, until = [], 100, time.monotonic() + 3.0
        while time.monotonic() < until:
            step += 1
            monitor.log({"train/loss": value_at(step)}, step)
            seen.append((time.monotonic(), sockets_to(proxy.port)))
            time.sleep(0.02)
        later = [count for when, count in seen if when > until - 1.5]
        figure("F2", "sockets open once the silence is known, the waiting poll among them", max(later), at_most=2)
        proxy.hangs = False
        assert monitor.flush(60)
    assert not any(differences(fault_server.points(monitor.start.run_id), step).values())


def test_f3_names_that_are_never_resolved_do_not_hold_up_the_start(tmp_path, figure, monkeypatch):
    over = threading.Event()
    asked = []

    def never(host, *more, **options):
        asked.append(host)
        over.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "there was no answer")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    monitor = new_monitor("http://lossguard.example:8787", "secret", tmp_path)
    try:
        begin = time.monotonic()
        began(monitor)
        figure("F3", "begin() while the resolver is silent", time.monotonic() - begin, at_most=2, unit="s")
        wait(lambda: asked)
        log_steps(monitor, 1, 1000)
        begin = time.monotonic()
        monitor.end(EndReason.FINISHED, 1000, timeout_seconds=1.5)
        figure("F3", "end() while the resolver is silent, given 1.5 s", time.monotonic() - begin, at_most=patience(5.0), unit="s")
        assert monitor.spool.waiting == 1002
    finally:
        over.set()
    wait(lambda: not any(thread.name == "lossguard-sender" for thread in threading.enumerate()))


def test_f6_exchanges_cut_at_random_bytes_lose_and_double_nothing(fault_server, watched, quick, figure):
    wanted = whole(500, 40)
    chance = random.Random(6)

    def harm(_: int) -> Harm | None:
        if not is_cutting:
            return None
        length = int(2 ** chance.uniform(0, 13))
        return Harm(up=length, resets=chance.random() < 0.5) if chance.random() < 0.5 else Harm(down=length)

    is_cutting = True
    with FaultProxy(fault_server.url, harm) as proxy:
        monitor = watched(proxy.url, fault_server.token)
        step, deadline = 0, time.monotonic() + 300  # it ends by the cuts; the time is against hanging
        while proxy.cuts < wanted and time.monotonic() < deadline:
            step += 1
            monitor.log({"train/loss": value_at(step)}, step)
            time.sleep(0.002)
        cuts, is_cutting = proxy.cuts, False
        proxy.drop_all()
        assert monitor.flush(60)
    found = fault_server.points(monitor.start.run_id)
    told = differences(found, step)
    figure("F6", f"exchanges cut, of {wanted} (seed 6)", cuts, at_least=wanted)
    figure("F6", f"points lost of {step}", told["lost"], at_most=0)
    figure("F6", "points doubled, altered or invented", sum(told.values()) - told["lost"], at_most=0)
    assert [point["seq"] for point in found] == sorted({point["seq"] for point in found})


def test_b9_a_start_whose_answer_is_cut_makes_one_run_and_no_ghost(fault_server, figure):
    with FaultProxy(fault_server.url) as proxy:
        client = HttpTransport(Config(proxy.url, fault_server.token))
        start = RunStart("ghost-run", "life-1", "p", "n")
        before = len(fault_server.ask("/api/runs")["runs"])
        proxy.harm = lambda number: Harm(down=number, resets=number % 2 == 0)
        answers = [client.announce(start) for _ in range(100)]
        assert {answer.meaning for answer in answers} == {Meaning.UNREACHABLE}
        proxy.harm = lambda _: None
        assert client.announce(start).meaning is Meaning.TAKEN
        client.close()
    run = fault_server.run_of("ghost-run")
    figure("B9", "runs after 100 cut answers", len(fault_server.ask("/api/runs")["runs"]) - before, at_most=1, at_least=1)
    starts = [event for event in run["events"] if event["type"] == "run.started"]
    figure("B9", "starts of it that are told", len(starts), at_most=1, at_least=1)


def test_b5_a_run_behind_a_slow_network_is_never_called_crashed(short_limit_server, watched, figure, monkeypatch):
    """The limit of 60 s is 4 s here, and a heartbeat comes every 0.7 s rather than every ten."""
    monkeypatch.setattr(sender, "HEARTBEAT_SECONDS", 0.7)
    with FaultProxy(short_limit_server.url) as proxy:
        monitor = watched(proxy.url, short_limit_server.token)
        log_steps(monitor, 1, 100)
        assert monitor.flush(30)
        proxy.latency_seconds, proxy.bytes_per_second = 0.4, 20_000
        step, seen = 1100, []
        log_steps(monitor, 101, step)  # a slow line is worst with a backlog
        until = time.monotonic() + 6.0
        while time.monotonic() < until:
            step += 1
            monitor.log({"train/loss": value_at(step)}, step)
            seen.append(short_limit_server.run_of(monitor.start.run_id)["state"])
            time.sleep(0.05)
        figure("B5", "looks that found a living run lost behind a slow line", seen.count("lost"), at_most=0)
        assert set(seen) == {"running"}
        proxy.latency_seconds, proxy.bytes_per_second = 0.0, None
        assert monitor.flush(60)
    assert not any(differences(short_limit_server.points(monitor.start.run_id), step).values())


def test_b5_a_run_is_not_called_crashed_because_the_server_was_paused(short_limit_server, watched, figure, monkeypatch):
    """A sleeping laptop, a stopped process: when it goes on, every agent has been silent by its clock. One of them is dead."""
    monkeypatch.setattr(sender, "HEARTBEAT_SECONDS", 0.7)
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 2.0)
    alive, dead = (watched(short_limit_server.url, short_limit_server.token, folder) for folder in ("alive", "dead"))
    for monitor in (alive, dead):
        log_steps(monitor, 1, 10)
        assert monitor.flush(30)
    assert dead._sender.stop(5)
    short_limit_server.pause()
    time.sleep(6.0)  # longer than the limit, which is what is tested
    short_limit_server.go_on()
    wait(lambda: short_limit_server.run_of(dead.start.run_id)["state"] == "lost", 30)
    run = short_limit_server.run_of(alive.start.run_id)
    told = [event["type"] for event in run["events"]].count("run.lost")
    figure("B5", "times a living run was told lost after a pause of the server", told, at_most=0)
    assert run["state"] == "running"
