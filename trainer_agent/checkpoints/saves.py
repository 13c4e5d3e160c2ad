"""The checkpoints of a training, from before the save to their end.

    coming -> saved -> (all ranks have saved) -> inspected -> in the catalogue -> removed, or gone
    coming -> failed     what it wrote is removed, and what lay there before is back

What lies where a save is coming is moved out of its way first: an older one of this run until the new one has been inspected, one
of another run for good, under a name that says so. So no checkpoint is ever a mixture of two.

Rank 0 looks after them; on any other rank nothing here does anything. Each rank writes its own random state into the directory,
so a checkpoint is inspected only once all ranks are past the save.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from trainer_agent.guest.voice import Voice
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

from .directories import Catalogue, read_manifest
from .disk_space import lacks_room
from .inspection import Save
from .inspector import Inspector
from .rotation import Outlook, Rotation
from .trash import bury, is_there, put_back, set_aside, tidy

ROOM_SECONDS = 10.0
"""How long a save that does not fit waits for what is about to be removed."""
REMOVE_SECONDS = 5.0
"""How long the end of a training waits for the same."""


class Saves:
    """Thread: training. `tell` is called in threads of the inspector and the trash too."""

    def __init__(
        self,
        output_dir: Path,
        run_id: str,
        tell: Callable[[CheckpointSaved], None],
        *,
        leads: bool,
        world_size: int = 1,
        outlook: Callable[[], Outlook] = Outlook,
    ) -> None:
        self.catalogue = Catalogue(output_dir, run_id)
        self._inspector, self._tell, self._leads = Inspector(tell, output_dir, run_id), tell, leads
        self.catalogue.at_forget = self._inspector.let_go
        self.rotation = Rotation(output_dir, run_id, self.catalogue, self._tell_removed, outlook)
        self._root, self._run_id, self._world_size = output_dir, run_id, world_size
        self.vocabulary = ""
        """What the token ids mean, where the integration knows it; see `vocabulary`."""
        self.moves_old = world_size == 1
        """Not where the ranks of a trainer write without waiting for rank 0: then it writes over what lies there."""
        self._began = time.monotonic()
        self._due: Save | None = None
        self._given: list[Save] = []
        self.is_due = False
        """Whether a save is not yet known to be over on every rank."""
        self._coming: int | None = None
        self._is_made_anew = False
        self._voice = Voice()
        self._old: dict[str, tuple[Path, CheckpointSaved | None]] = {}
        """By id: older ones of this run that were moved out of the way, until the new one has been inspected."""

    def load(self) -> None:
        """Takes up what an earlier life of the run left."""
        if self._leads:
            self.catalogue.load()
            self._inspector.take_up()

    def clean(self) -> None:
        """Takes up what any process left that died while it saved or removed."""
        if self._leads:
            for grave in tidy(self._root, self._run_id):
                self.rotation.trash.burn(grave)

    def restart_clock(self) -> None:
        """What follows is the time of a save."""
        self._began = time.monotonic()

    # --- a save

    def lacks_room(self) -> str:
        """Why the next checkpoint will not fit; empty when it will. Waits for what is being removed, where that may help."""
        if not self._leads:
            return ""
        problem = self._lacks_room()
        if problem and (not self._inspector.wait(0.0) or self.rotation.trash.is_busy):
            self._inspector.wait(ROOM_SECONDS)
            self.take_inspected()
            self.rotation.trash.wait(ROOM_SECONDS)
            problem = self._lacks_room()
        return problem

    def _lacks_room(self) -> str:
        whole = [facts for facts in self.catalogue.known() if facts.state is CheckpointState.COMPLETE]
        if not whole:
            return ""
        largest = max((file.size_bytes for file in whole[-1].files), default=0)
        return lacks_room(self._root, whole[-1].size_bytes, largest)

    def coming(self, step: int) -> None:
        """A directory that is written anew is no checkpoint until it has been inspected again."""
        self._forget_unfinished()
        if self._leads:
            self._make_place(self.catalogue.path_of_step(step))
            self._coming = step
        self.restart_clock()

    def _make_place(self, directory: Path) -> None:
        was_wanted = self._inspector.drop(directory)
        self.take_inspected()
        self.rotation.trash.spare(directory.name)
        found = read_manifest(directory, self._run_id)
        facts, is_own = self.catalogue.forget(directory.name) or found, was_wanted or found is not None
        aside = self._moved(directory, is_own=is_own)
        if aside is None:
            self._inspector.withdraw(directory)
        elif is_own:
            self._old[directory.name] = (aside, facts)
        else:
            where = f"{directory} of another run lies where this one saves"
            self._voice.once("another run", f"{where}: it is kept as {aside.name}, and so is each further one")
        self._is_made_anew = not directory.exists()

    def _moved(self, directory: Path, *, is_own: bool) -> Path | None:
        if not self.moves_old:
            return None
        try:
            return set_aside(directory, is_own=is_own)
        except OSError as error:
            self._voice.once("aside", f"{directory} cannot be moved out of the way ({error.strerror}); the save writes over it")
            return None

    def failed(self) -> None:
        """The save that was coming has come to nothing."""
        step, self._coming = self._coming, None
        if step is not None:
            self._put_back(self.catalogue.path_of_step(step), removes=self._is_made_anew)

    def _forget_unfinished(self) -> None:
        """A save that was announced and of which nothing was heard: what was moved for it is back, what it wrote is let be."""
        step, self._coming = self._coming, None
        if step is not None:
            self._put_back(self.catalogue.path_of_step(step), removes=False)

    def _put_back(self, directory: Path, *, removes: bool) -> None:
        aside, facts = self._old.pop(directory.name, (None, None))
        try:
            if aside is not None:
                self.rotation.trash.burn(put_back(aside))
            elif removes:
                self.rotation.trash.burn(bury(directory))
        except OSError as error:
            self._voice.once("unfinished", f"what a failed save left in {directory} cannot be removed: {error.strerror}")
        if aside is not None and facts is not None:
            self.catalogue.add(facts)
            self._inspector.keep(facts.checkpoint_id)

    def saved(self, step: int, segment: int, sick: str, *, wait: bool, signals: Mapping[str, float] | None = None) -> str:
        """The trainer has written the checkpoint of `step`; its id.

        Args:
            wait: until `all_have_saved`.
            signals: the newest value of each standard series.
        """
        directory = self.catalogue.path_of_step(step)
        self.is_due = wait
        self._coming = None
        if self._leads:
            self._due = self._save_of(directory, step, segment, sick, signals or {}, took=time.monotonic() - self._began)
            if not wait:
                self.all_have_saved()
        return directory.name

    def given(self, directory: Path, step: int, segment: int, sick: str, signals: Mapping[str, float]) -> None:
        """The script has written a checkpoint to a folder of its own: inspected once all ranks are past it, and never removed."""
        if self._leads:
            self._given.append(self._save_of(directory, step, segment, sick, signals))

    def _save_of(
        self, directory: Path, step: int, segment: int, sick: str, signals: Mapping[str, float], *, took: float | None = None
    ) -> Save:
        return Save(
            self._run_id,
            directory,
            segment,
            step,
            time.time(),
            sick,
            took,
            world_size=self._world_size,
            signals=dict(signals),
            vocabulary=self.vocabulary,
        )

    def all_have_saved(self) -> None:
        """Every rank is past the last save."""
        due, self._due, self.is_due = self._due, None, False
        given, self._given = self._given, []
        for save in (due, *given):
            if save is not None:
                self._inspector.submit(save)

    # --- afterwards

    def take_inspected(self) -> None:
        """Takes in the checkpoints inspected since the last call, and removes those that are needed no longer."""
        self._forget_unfinished()
        inspected = self._inspector.take_done()
        for facts in inspected:
            if facts.state is CheckpointState.DELETED:
                self.catalogue.forget(facts.checkpoint_id)
            else:
                self.catalogue.add(facts)
                self._replace_old(facts)
        if inspected:
            self.rotation.thin_out()

    def _replace_old(self, new: CheckpointSaved) -> None:
        """The older one of this step goes, unless it is the only one to go back to."""
        aside, old = self._old.pop(new.checkpoint_id, (None, None))
        with suppress(OSError):
            if aside is None or not is_there(aside):
                return
            if old is not None and self.rotation.is_better(old, new):
                self.rotation.trash.burn(put_back(aside))
                self.catalogue.add(old)
                self._inspector.back(old)
            else:
                self.rotation.trash.burn(bury(aside))

    def settle(self) -> None:
        """Takes in the checkpoints inspected, and has the others looked at, so not for every step."""
        self._inspector.look()
        self.take_inspected()

    def _tell_removed(self, facts: CheckpointSaved) -> None:
        self._tell(facts)
        self._inspector.forget(facts)

    def settle_all(self, timeout_seconds: float) -> None:
        """Waits within the limit until nothing is left to inspect."""
        self.all_have_saved()
        self._inspector.look()
        self._inspector.wait(timeout_seconds)
        self.take_inspected()

    def close(self) -> None:
        """Ends the threads after what is queued, and waits a little for what is being removed."""
        self._inspector.close()
        self.rotation.trash.wait(REMOVE_SECONDS)
        self.rotation.trash.close()
