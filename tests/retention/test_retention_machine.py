"""Random lives of runs in one folder: never without a sound checkpoint once there was one, never a foreign deletion.

The folder, the manifests, the catalogue, the rotation and the trash are real, only the files of a checkpoint are not: what an
inspection would find is drawn. What is on the disk is judged by a reading of its own, not by the parts under test.
"""

import hashlib
import itertools
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from trainer_agent.checkpoints import rotation
from trainer_agent.checkpoints.directories import draft_manifest
from trainer_agent.checkpoints.inspection import MANIFEST, Save
from trainer_agent.checkpoints.retention import UNKNOWN_LEAD, Turn
from trainer_agent.checkpoints.rotation import Outlook
from trainer_agent.checkpoints.saves import Saves
from trainer_agent.wire.messages import CheckpointFile, CheckpointSaved, Verdict
from trainer_agent.wire.vocabulary import CheckpointState

SEQUENCES = 2_000 if os.environ.get("LOSSGUARD_SOAK") else 200
KINDS = st.sampled_from(["sound"] * 5 + ["nan", "sick", "corrupt", "bare"])
PARTS = ("model", "optimizer", "scheduler", "rng", "position")
MEMORY = "/dev/shm"
"""Where it is there, a sync costs nothing."""
totals = {"sequences": 0, "saves": 0, "removed": 0, "rollbacks": 0, "new runs": 0}


def described(path: Path) -> CheckpointFile:
    return CheckpointFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


class Runs(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=MEMORY if Path(MEMORY).is_dir() else None))
        self.numbers = itertools.count()
        self.saves = None
        self.foreign: dict[str, str] = {}
        self.sound_before: set[str] = set()
        self.is_harmed = False
        totals["sequences"] += 1
        self.begin_run(keep=1)

    # --- the run under test

    def begin_run(self, keep):
        self.run_id = f"run-{next(self.numbers)}"
        self.keep, self.segment, self.step, self.lead = keep, 1, 0, None
        self.verdicts: dict[str, Verdict] = {}
        self.targets: frozenset[str] = frozenset()
        self.turns = [Turn(1, 0)]
        self.parent, self.best = None, None
        self.begin_process()

    def begin_process(self):
        if self.saves is not None:
            self.end_process()
        self.saves = Saves(self.root, self.run_id, lambda _: None, leads=True, outlook=self.outlook)
        self.saves.rotation.keep = self.keep
        self.saves.clean()
        self.saves.load()
        self.saves.rotation.parent = self.parent
        self.saves.rotation.best = frozenset(filter(None, [self.best]))
        assert self.saves.rotation.trash.wait(30)

    def settle(self):
        """What the threads have still to do is done, so that a step sees its own effects and no others."""
        assert self.saves._inspector.wait(30)
        self.saves.take_inspected()
        assert self.saves.rotation.trash.wait(30)

    def end_process(self):
        assert self.saves._inspector.wait(30)
        self.saves.close()

    def outlook(self):
        return Outlook(self.verdicts, False, tuple(self.turns), self.lead, self.targets)

    def facts(self, kind, name):
        state = CheckpointState.CORRUPT if kind == "corrupt" else CheckpointState.COMPLETE
        return CheckpointSaved(
            name,
            self.segment,
            self.step,
            time.time(),
            state,
            files=tuple(described(path) for path in sorted((self.root / name).iterdir())),
            size_bytes=1,
            parts=PARTS[:1] if kind == "bare" else PARTS,
            nonfinite_weights=int(kind == "nan"),
            nonfinite_optimizer=0,
            sick_because="the loss was not finite" if kind == "sick" else "",
            signals={"train/loss": float("nan")},
        )

    # --- what is on the disk, read without the parts under test

    def read(self, directory):
        try:
            found = json.loads((directory / MANIFEST).read_bytes())
        except OSError:
            return None, None
        return found["run_id"], found["checkpoint"]

    def own(self):
        found = {path.name: self.read(path) for path in self.root.glob("checkpoint-*")}
        return {name: facts for name, (run_id, facts) in found.items() if run_id == self.run_id}

    def is_sound(self, name, facts):
        verdict = self.verdicts.get(name)
        judged = verdict is not None and verdict.state in ("unsound", "corrupt")
        whole = facts["state"] == "complete" and len(facts["parts"]) == len(PARTS) and not facts["nonfinite_weights"]
        return whole and not facts["sick_because"] and not judged

    def sound(self):
        return {name for name, facts in self.own().items() if self.is_sound(name, facts)}

    def effective(self):
        """Steps of the sound ones on the curve that the run is on."""
        own = self.own()
        places = [(own[name]["segment"], own[name]["step"]) for name in self.sound()]
        marks = [(turn.segment, turn.from_step) for turn in self.turns]
        marks += [(facts["segment"], facts["step"] - 1) for facts in own.values()]
        return sorted(step for at, step in places if not any(segment > at and begin < step for segment, begin in marks))

    # --- what happens

    @rule(ahead=st.integers(1, 30), kinds=st.lists(KINDS, min_size=1, max_size=5), dies=st.booleans())
    def save(self, ahead, kinds, dies):
        for kind in kinds:
            self.save_one(ahead, kind)
        if dies:
            self.begin_process()

    def save_one(self, ahead, kind):
        self.step += ahead
        name = f"checkpoint-{self.step}"
        self.settle()
        self.verdicts.pop(name, None)  # of the older one of this name; the server judges the new one anew
        self.saves.coming(self.step)
        self.write(name, kind)
        self.saves.saved(self.step, self.segment, "", wait=True)
        self.saves._due = None
        self.conclude(name, kind)
        totals["saves"] += 1

    def write(self, name, kind):
        directory = self.root / name
        directory.mkdir()
        (directory / "model").write_text(f"{self.run_id} {self.segment} {self.step} {kind}")
        (directory / "trainer_state.json").write_text(json.dumps({"global_step": self.step}))

    def conclude(self, name, kind):
        """What the inspection would do; then what the training does at its next boundary."""
        facts, directory = self.facts(kind, name), self.root / name
        draft = draft_manifest(Save(self.run_id, directory, self.segment, self.step, time.time()), facts)
        draft.replace(directory / MANIFEST)
        before, curve = self.own(), self.effective()
        self.saves._inspector._away.discard(name)
        self.saves._inspector._done.put(facts)
        self.saves.take_inspected()
        assert self.saves.rotation.trash.wait(30)
        self.check_removal(before, curve)

    def check_removal(self, before, curve):
        after, left = self.own(), self.effective()
        gone = set(before) - set(after)
        totals["removed"] += len(gone)
        assert not gone & self.held_on_to(before)
        assert len(left) >= min(3, len(curve)), f"of sound ones at {curve} there are {left}"
        wide = 2 * (UNKNOWN_LEAD if self.lead is None else self.lead)
        if curve and curve[-1] - curve[0] > wide:
            assert left[-1] - left[0] > wide, f"of sound ones at {curve} there are {left}"
        if gone:
            newest = max(before, key=lambda name: (before[name]["segment"], before[name]["step"]))
            assert newest in after

    def held_on_to(self, own):
        pinned = {name for name, verdict in self.verdicts.items() if verdict.pinned}
        return (pinned | self.targets | {self.parent, self.best}) & set(own)

    @rule(ahead=st.integers(1, 30), dies=st.booleans())
    def fail_to_save(self, ahead, dies):
        self.step += ahead
        name = f"checkpoint-{self.step}"
        self.settle()
        before = self.own().get(name)
        self.saves.coming(self.step)
        (self.root / name).mkdir()
        (self.root / name / "model").write_text("half")
        if dies:
            self.begin_process()
        else:
            self.saves.failed()
            assert self.saves.rotation.trash.wait(30)
            assert (self.root / name).exists() == (before is not None)
        if before is not None:
            assert self.own()[name] == before
        shutil.rmtree(self.root / name) if before is None and dies else None

    @precondition(lambda self: self.own())
    @rule(data=st.data(), state=st.sampled_from([CheckpointState.UNSOUND, CheckpointState.CORRUPT]))
    def lower_a_verdict(self, data, state):
        name = data.draw(st.sampled_from(sorted(self.own())))
        pinned = self.verdicts[name].pinned if name in self.verdicts else False
        self.verdicts[name] = Verdict(name, state, "the onset was earlier", pinned=pinned)
        self.is_harmed = True

    @precondition(lambda self: self.own())
    @rule(data=st.data(), pinned=st.booleans())
    def pin(self, data, pinned):
        name = data.draw(st.sampled_from(sorted(self.own())))
        old = self.verdicts.get(name, Verdict(name, CheckpointState.SOUND))
        self.verdicts[name] = Verdict(name, old.state, old.reason, pinned=pinned)

    @precondition(lambda self: self.own())
    @rule(data=st.data())
    def order_a_rollback(self, data):
        self.targets = frozenset({data.draw(st.sampled_from(sorted(self.own())))})

    @precondition(lambda self: self.targets & self.sound())
    @rule(lead=st.integers(0, 40))
    def roll_back(self, lead):
        (name,) = self.targets
        self.lead = max(self.lead or 0, lead)
        self.segment, self.step = self.segment + 1, self.own()[name]["step"]
        self.turns.append(Turn(self.segment, self.step))
        self.parent = self.saves.rotation.parent = name
        self.targets = frozenset()
        totals["rollbacks"] += 1

    @precondition(lambda self: self.own())
    @rule(data=st.data())
    def become_the_best(self, data):
        self.best = data.draw(st.sampled_from(sorted(self.own())))
        self.saves.rotation.best = frozenset({self.best})

    @rule()
    def die_and_come_back(self):
        self.begin_process()

    @rule(keep=st.sampled_from([None, 1, 1, 2, 4]), seldom=st.integers(0, 4))
    def begin_anew_in_the_same_folder(self, keep, seldom):
        if seldom:
            return
        self.foreign |= self.texts()
        self.begin_run(keep)
        self.is_harmed = True
        totals["new runs"] += 1

    # --- what must hold

    @invariant()
    def there_is_a_sound_one_once_there_was_one(self):
        now = self.sound()
        assert now or self.is_harmed or not self.sound_before, f"the sound ones were {self.sound_before}"
        self.sound_before, self.is_harmed = now, False

    @invariant()
    def what_others_left_is_there_as_it_was(self):
        assert not set(self.foreign) - set(self.texts()), "of what other runs had left"

    @invariant()
    def nothing_is_left_half_way(self):
        assert not list(self.root.glob(".lossguard-*"))

    def texts(self):
        """What the files of all checkpoints hold."""
        return {path.read_text(): path.parent.name for path in self.root.glob("*checkpoint-*/model")}

    def teardown(self):
        self.end_process()
        shutil.rmtree(self.root, ignore_errors=True)  # the inspector's thread may still note something down


def live(sequences, **more):
    wanted = {"stateful_step_count": 25, "deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    run_state_machine_as_test(Runs, settings=settings(max_examples=sequences, **wanted, **more))


def test_no_life_of_runs_in_a_folder_ends_without_a_sound_checkpoint_or_harms_a_foreign_one(figure):
    live(SEQUENCES)
    figure("F53", "random lives of runs without a sound one left, or with a foreign deletion", 0, at_most=0)
    for what, count in totals.items():
        figure("F53", f"{what} in them", count, at_least=1)


def newest_by(key):
    return lambda known, keep, *_: tuple(each.checkpoint_id for each in sorted(known, key=key)[: -(keep or 99)])


BROKEN = {
    "the trainer's own: the highest steps stay": newest_by(lambda each: each.step),
    "the limit alone": newest_by(lambda each: (each.segment, each.step)),
    "none": lambda known, *_: tuple(each.checkpoint_id for each in known),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found_out(monkeypatch, name):
    monkeypatch.setattr(rotation, "to_remove", BROKEN[name])
    with pytest.raises(AssertionError):
        live(60, phases=[Phase.generate], report_multiple_bugs=False)
