"""Phrases and their features: what is kept, what is encoded, what is refused; and the text encoder itself."""

import logging
import os

import pytest
import torch

pytest.importorskip("transformers")

from safetensors.torch import save_file

from sam3_stream.core.errors import ModelError, PromptError
from sam3_stream.models.sam3.prompt_bank import PromptBank, default_bank_folder, text_weights_hash
from sam3_stream.models.sam3.text_encoder import TextEncoder, TextFeatures, normalize_phrase
from sam3_stream.models.sam3.weights import Checkpoint
from tests.support.sam3_checkpoints import small_config
from tests.support.sam3_tokenizer import save_tokenizer, tiny_tokenizer


@pytest.fixture(scope="module")
def reference():
    from transformers import Sam3VideoModel

    torch.manual_seed(0)
    return Sam3VideoModel(small_config()).eval()


@pytest.fixture
def checkpoint(reference, tmp_path):
    reference.save_pretrained(tmp_path / "model")
    save_tokenizer(tmp_path / "model")
    return Checkpoint(tmp_path / "model")


class Counted:
    """A text encoder that remembers what it was asked."""

    def __init__(self):
        self.batches = []

    def __call__(self, phrases):
        self.batches.append(list(phrases))
        return [
            TextFeatures(torch.full((4, 8), float(len(phrase))), torch.tensor([True, True, False, False]))
            for phrase in phrases
        ]


def test_features_are_those_of_the_reference_for_any_script(checkpoint, reference):
    phrases = ["dog", "red dog", "a cat, sitting", "狗", "собака", "🐕‍🦺 dog", "ὁ κύων"]
    encoded = TextEncoder(checkpoint)([normalize_phrase(phrase) for phrase in phrases])
    for phrase, features in zip(phrases, encoded, strict=True):
        tokens = tiny_tokenizer()(phrase, padding="max_length", max_length=32, return_tensors="pt")
        with torch.inference_mode():
            expected = reference.detector_model.get_text_features(**tokens, return_dict=True).pooler_output[0]
        assert torch.equal(features.valid_l, tokens.attention_mask[0].bool())
        assert torch.allclose(features.tokens_lc, expected, atol=1e-5)
    assert features.tokens_lc[features.valid_l].std() > 0.01


def test_every_phrase_is_encoded_once_and_new_ones_as_one_batch():
    encode = Counted()
    bank = PromptBank(encode, "hash", folder=None)
    first = bank(["dog", "red car", "dog"])
    assert first[0] is first[2]
    again = bank(["red car", "bus", "dog"])
    assert encode.batches == [["dog", "red car"], ["bus"]]
    assert again[0] is first[1]


def test_phrases_that_the_tokenizer_reads_alike_are_one():
    encode = Counted()
    bank = PromptBank(encode, "hash", folder=None)
    bank(["Red  Dog", " red dog ", "RED\tDOG\n"])
    assert encode.batches == [["red dog"]]
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    bank([composed, decomposed])
    assert encode.batches[1:] == [["café"]]
    same = tiny_tokenizer()
    assert same(" red  Dog").input_ids == same("red dog").input_ids
    assert same(decomposed).input_ids == same(composed).input_ids


def test_memory_keeps_the_phrases_used_last_and_no_more():
    encode = Counted()
    bank = PromptBank(encode, "hash", folder=None, capacity=3)
    bank(["a", "b", "c"])
    bank(["a"])
    bank(["d"])
    assert len(bank) == 3
    assert "a" in bank
    assert "b" not in bank
    for number in range(1000):
        bank([f"thing {number}"])
    assert len(bank) == 3


def test_with_every_phrase_in_the_bank_the_text_encoder_is_never_loaded(checkpoint, tmp_path):
    weights_hash = text_weights_hash(checkpoint.folder)
    first = TextEncoder(checkpoint)
    written = PromptBank(first, weights_hash, tmp_path / "bank")(["dog", "red car"])
    assert first.is_loaded

    for name in ("tokenizer.json", "tokenizer_config.json"):
        (checkpoint.folder / name).rename(tmp_path / name)  # nothing of the text tower is there any more
    second = TextEncoder(checkpoint)
    bank = PromptBank(second, weights_hash, tmp_path / "bank")
    read = bank(["red car", "dog"])
    assert not second.is_loaded
    assert torch.equal(read[0].tokens_lc, written[1].tokens_lc)
    assert torch.equal(read[1].valid_l, written[0].valid_l)
    with pytest.raises(ModelError, match=r"holds no tokenizer\.json"):
        bank(["bus"])


def test_other_weights_have_a_bank_of_their_own(reference, checkpoint, tmp_path):
    before = text_weights_hash(checkpoint.folder)
    assert before == text_weights_hash(checkpoint.folder)
    state = {name: value.clone() for name, value in reference.state_dict().items()}
    state["tracker_model.no_memory_embedding"] += 1
    save_file(state, checkpoint.folder / "model.safetensors")
    assert text_weights_hash(checkpoint.folder) == before, "the tracker's weights have no say in text features"
    state["detector_model.text_encoder.text_model.encoder.layers.0.mlp.fc1.weight"] += 0.01
    save_file(state, checkpoint.folder / "model.safetensors")
    assert text_weights_hash(checkpoint.folder) != before

    encode = Counted()
    PromptBank(encode, before, tmp_path)(["dog"])
    assert "dog" in PromptBank(encode, before, tmp_path)
    assert "dog" not in PromptBank(encode, "another", tmp_path)


def test_a_damaged_file_is_made_again(tmp_path, caplog):
    encode = Counted()
    PromptBank(encode, "hash", tmp_path)(["dog"])
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:20])
    with caplog.at_level(logging.WARNING):
        PromptBank(encode, "hash", tmp_path)(["dog"])
    assert "'dog' is damaged" in caplog.text
    assert encode.batches == [["dog"], ["dog"]]
    PromptBank(encode, "hash", tmp_path)(["dog"])
    assert len(encode.batches) == 2
    assert [file.suffix for file in tmp_path.rglob("*") if file.is_file()] == [".safetensors"], "no parts left over"


def test_a_bank_that_cannot_be_written_costs_a_warning_only(tmp_path, caplog):
    (tmp_path / "file").touch()
    encode = Counted()
    bank = PromptBank(encode, "hash", tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        bank(["dog"])
        bank(["dog"])
    assert "encoded again next time" in caplog.text
    assert encode.batches == [["dog"]], "memory still has it"


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u2003"])
def test_an_empty_phrase_is_refused(text):
    with pytest.raises(PromptError, match="the phrase is empty"):
        PromptBank(Counted(), "hash", None)([text])


def test_a_phrase_of_200_words_is_refused_and_the_message_says_how_long_it_may_be(checkpoint):
    bank = PromptBank(TextEncoder(checkpoint), "hash", None)
    with pytest.raises(
        PromptError, match="'dog dog dog dog dog dog dog dog dog d…' is too long: SAM 3 reads 30 tokens"
    ):
        bank(["dog " * 200])
    assert len(bank) == 0
    assert bank(["dog " * 30])[0].valid_l.all()


def test_unloading_frees_the_weights_and_a_new_phrase_brings_them_back(checkpoint):
    encoder = TextEncoder(checkpoint)
    before = encoder(["dog"])[0]
    encoder.unload()
    assert not encoder.is_loaded
    assert torch.equal(encoder(["dog"])[0].tokens_lc, before.tokens_lc)


def test_a_broken_tokenizer_is_named(checkpoint):
    (checkpoint.folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        TextEncoder(checkpoint)(["dog"])


def test_the_folder_is_the_users_choice_or_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SAM3_STREAM_PROMPT_BANK", os.fspath(tmp_path))
    assert default_bank_folder() == tmp_path
    monkeypatch.delenv("SAM3_STREAM_PROMPT_BANK")
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    assert default_bank_folder() == tmp_path / "sam3_stream" / "prompts"
