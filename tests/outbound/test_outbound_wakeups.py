import asyncio
import threading

from server.outbound.wakeups import Bus


def test_hints_of_a_run_are_merged_until_they_are_read():
    async def listen():
        bus = Bus()
        with bus.subscribe("a") as one, bus.subscribe() as everything:
            ringing = threading.Thread(target=lambda: [bus.ring({"a": n, "b": n}) for n in range(1, 100)])
            ringing.start()
            ringing.join()
            bus.ring(webhooks=True)
            bus.ring(rules=True)
            await asyncio.sleep(0)
            hint, all_ = await one.wait(30), await everything.wait(30)
            return hint.revisions["a"], all_.revisions, all_.webhooks, all_.rules, hint.rules, await one.wait(0.01)

    assert asyncio.run(listen()) == (99, {"a": 99, "b": 99}, True, True, False, None)


def test_a_hint_that_was_read_is_not_told_again():
    async def listen():
        bus = Bus()
        with bus.subscribe() as everything:
            bus.ring(rules=True)
            first = await everything.wait(30)
            bus.ring(webhooks=True)
            second = await everything.wait(30)
            return (first.rules, first.webhooks), (second.rules, second.webhooks)

    assert asyncio.run(listen()) == ((True, False), (False, True))


def test_a_closed_bus_lets_go_of_those_who_wait_and_of_those_who_come():
    async def listen():
        bus = Bus()
        with bus.subscribe() as early:
            threading.Timer(0.05, bus.close).start()
            first = await early.wait(30)
        with bus.subscribe("x") as late:
            return first.closed, (await late.wait(30)).closed, (await late.wait(30)).closed

    assert asyncio.run(listen()) == (True, True, True)


def test_a_listener_that_is_gone_is_forgotten_and_a_closed_loop_does_no_harm():
    bus = Bus()

    async def come_and_go():
        with bus.subscribe():
            pass
        return bus.subscribe()

    kept = asyncio.run(come_and_go())

    async def stay():
        return kept.__enter__()

    subscription = asyncio.run(stay())
    bus.ring({"a": 1})
    assert subscription is not None
    assert len(bus._subscriptions) == 1
