"""A trainer over HTTP whose records are reports, and people who click."""

import itertools

import httpx2

from trainer_agent.wire.codec import decode, encode
from trainer_agent.wire.messages import Batch, CheckpointSaved, Numbered, Reply, Report, RunEnded, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, SegmentCause

PARTS = ("model", "optimizer", "scheduler", "rng", "position")
_KEYS = itertools.count(1)


class HttpTrainer:
    """Says what it is told to, and keeps the answers' commands."""

    def __init__(self, client: httpx2.Client, run_id: str, incarnation: str = "life-1") -> None:
        self.client, self.run_id, self.incarnation, self.seq = client, run_id, incarnation, 0
        self.given: dict[str, object] = {}

    def start(self, segment: int = 1) -> "HttpTrainer":
        start = RunStart(self.run_id, self.incarnation, "p", "n", capabilities=tuple(CommandKind), data_modes=tuple(DataMode))
        self._post("runs", start)
        cause = SegmentCause.START if segment == 1 else SegmentCause.RESTART
        saved = CheckpointSaved(
            "c-4", 1, 4, 0.0, CheckpointState.COMPLETE, parts=PARTS, nonfinite_weights=0, nonfinite_optimizer=0
        )
        return self.say(SegmentStarted(segment, 0 if segment == 1 else 4, cause, 0.0), saved)

    def say(self, *records) -> "HttpTrainer":
        numbered = tuple(Numbered(self.seq + place, record) for place, record in enumerate(records, 1))
        last = self.seq + len(records)
        self._post("batches", Batch(self.run_id, self.incarnation, 0, self.seq + 1, last, 0.0, records=numbered))
        self.seq = last
        return self

    def report(self, command_id: str, *states: CommandState) -> "HttpTrainer":
        return self.say(*(Report(command_id, state, 0.0, 5) for state in states))

    def end(self, reason) -> "HttpTrainer":
        return self.say(RunEnded(reason, 0.0, 5))

    def fetch(self) -> list[str]:
        """Ids of the commands that wait for this process."""
        answer = self.client.get(
            f"/api/agent/runs/{self.run_id}/commands", params={"incarnation": self.incarnation, "rank": 0, "wait": 0}
        )
        return [each.command_id for each in decode(Reply, answer.content).commands]

    def _post(self, where: str, message: object) -> None:
        answer = self.client.post(f"/api/agent/{where}", content=encode(message), headers={"Content-Type": "application/json"})
        assert answer.status_code == 200, answer.text


def click(client: httpx2.Client, run_id: str, kind: str, *, segment: int = 1, key: str = "", **more) -> httpx2.Response:
    """One press of a button."""
    body = {"kind": kind, "seen_segment": segment, **more}
    return client.post(f"/api/runs/{run_id}/commands", json=body, headers={"Idempotency-Key": key or f"key-{next(_KEYS)}"})
