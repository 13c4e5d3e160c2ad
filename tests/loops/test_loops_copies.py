"""A script may copy, pickle and save its model while it is under watch; what it gets is the model without LossGuard."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from loops_kit import Training, tape

from trainer_agent.wire.vocabulary import Phase

COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "average": lambda model: torch.optim.swa_utils.AveragedModel(model).module,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_model_under_watch_can_be_copied_and_the_copy_tells_nothing(way, tmp_path, monkeypatch, capsys):
    tape(monkeypatch, tmp_path)
    training, copies = Training(), []
    training.at = {2: lambda: copies.append(COPIES[way](training.model))}
    with training.watch(tmp_path / "out") as run:
        training.draws(run.steps(4), run)
        phases = []
        monkeypatch.setattr(run._driver._hooks, "_set_phase", phases.append)
        for model in (copies[0], training.model):
            with torch.no_grad():
                model.eval()(torch.zeros(1, 6))
            assert phases == ([] if model is copies[0] else [Phase.EVALUATING])
    assert len(training.losses) == 4
    assert "error of LossGuard" not in capsys.readouterr().err


def test_a_model_saved_under_watch_is_loaded_where_lossguard_is_not(tmp_path, monkeypatch):
    tape(monkeypatch, tmp_path)
    training = Training()
    with training.watch(tmp_path / "out") as run:
        for _ in run.steps(1):
            loss, norm = training.update(training.draw())
            torch.save(training.model, tmp_path / "whole.pt")
            run.step_ended(loss=loss, grad_norm=norm)
    code = "import sys, torch; model = torch.load(sys.argv[1], weights_only=False); print(model(torch.zeros(1, 6)).shape)"
    code += "; assert not [name for name in sys.modules if name.startswith('trainer_agent')]"
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "whole.pt")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 1])" in done.stdout
