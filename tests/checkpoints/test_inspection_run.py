"""What a watched training puts into the manifests of its checkpoints."""

import json

import torch
from inspection_kit import Rows, gpt2
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments, default_data_collator
from transformers.trainer_callback import PrinterCallback

from trainer_agent.checkpoints.inspection import MANIFEST
from trainer_agent.checkpoints.told import read
from trainer_agent.data.vocabulary import describe
from trainer_agent.hf import guarded_train

torch.set_num_threads(1)


def tokenizer(*words: str) -> PreTrainedTokenizerFast:
    model = WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0])
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token=words[0])


def test_a_vocabulary_is_told_by_size_and_digest_and_its_settings_make_no_difference():
    told = describe(tokenizer("<unk>", "a", "b"))
    assert told.startswith("3 tokens, ")
    padded = tokenizer("<unk>", "a", "b")
    padded.padding_side = "left"
    assert describe(padded) == told
    assert describe(tokenizer("<unk>", "b", "a")) != told
    assert [describe(thing) for thing in (None, object(), 3)] == ["", "", ""]


def test_a_watched_training_puts_versions_signals_and_vocabulary_into_its_manifests(tmp_path):
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        save_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    words = tokenizer("<unk>", "a", "b")
    made = {"data_collator": default_data_collator, "processing_class": words}
    trainer = Trainer(model=gpt2(), args=arguments, train_dataset=Rows(), **made)
    trainer.remove_callback(PrinterCallback)
    guarded_train(trainer)
    told = {step: json.loads((tmp_path / f"checkpoint-{step}" / MANIFEST).read_text())["checkpoint"] for step in (2, 4)}
    assert told[4]["versions"].keys() >= {"python", "torch", "transformers", "accelerate", "lossguard"}
    assert told[4]["vocabulary"] == describe(words)
    assert told[4]["world_size"] == 1
    assert told[4]["signals"].keys() >= {"train/loss", "train/grad_norm", "train/learning_rate", "perf/step_seconds"}
    assert told[2]["signals"]["train/loss"] != told[4]["signals"]["train/loss"]
    run_id = json.loads((tmp_path / "checkpoint-4" / MANIFEST).read_text())["run_id"]
    assert set(read(tmp_path, run_id)) == {"checkpoint-2", "checkpoint-4"}
