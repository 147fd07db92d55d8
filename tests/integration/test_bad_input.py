"""Bad input: one line that says what was expected, what came and what to do; exit code 2, or 1 once frames flowed."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.support.clips import write_clip, write_images, write_tone


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", frames=12)


@pytest.fixture
def refused(tmp_path, sam3_stream_command):
    """Runs a `track` command that must be refused with exit code 2; the error line."""

    def run(source, *arguments, prompts=("--click", "40,40"), outputs=True):
        extra = ("--masks", tmp_path / "out.jsonl") if outputs else ()
        outcome = sam3_stream_command("track", source, "--model", "fake", *prompts, *extra, *arguments)
        line = outcome.error_line
        assert outcome.code == 2, outcome.err
        assert not (tmp_path / "out.jsonl").exists(), "nothing is written for a job that cannot be done"
        return line

    return run


def test_a_missing_file(refused, tmp_path):
    assert "none.mp4" in refused(tmp_path / "none.mp4")


def test_a_text_file_named_mp4(refused, tmp_path):
    (tmp_path / "text.mp4").write_text("this is no video\n" * 50)
    assert "text.mp4" in refused(tmp_path / "text.mp4")


def test_an_audio_only_file(refused, tmp_path):
    write_tone(tmp_path / "tone.m4a")
    line = refused(tmp_path / "tone.m4a")
    assert "video" in line


def test_an_empty_folder(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(tmp_path / "empty")


def test_images_of_different_sizes(refused, tmp_path):
    write_images(tmp_path / "mixed", frames=3)
    Image.fromarray(np.zeros((50, 60, 3), np.uint8)).save(tmp_path / "mixed" / "zz.png")
    line = refused(tmp_path / "mixed")
    assert "60x50" in line
    assert "160x120" in line


def test_a_click_outside_the_picture(refused, clip):
    assert "the click at 160,40 is outside the picture, which is 160x120" in refused(
        clip, prompts=("--click", "160,40")
    )


def test_a_box_with_no_area(refused, clip):
    assert "the box 50,50,50,80 has no area" in refused(clip, prompts=("--box", "50,50,50,80"))


def test_a_mask_of_another_size(refused, clip, tmp_path):
    Image.fromarray(np.full((60, 80), 255, np.uint8)).save(tmp_path / "mask.png")
    line = refused(clip, prompts=("--mask", tmp_path / "mask.png"))
    assert "the mask is 80x60, the picture is 160x120" in line


def test_an_empty_mask_a_missing_mask_and_one_that_is_no_image(refused, clip, tmp_path):
    Image.fromarray(np.zeros((120, 160), np.uint8)).save(tmp_path / "mask.png")
    assert "the mask is empty" in refused(clip, prompts=("--mask", tmp_path / "mask.png"))
    assert "does not exist" in refused(clip, prompts=("--mask", tmp_path / "none.png"))
    (tmp_path / "text.png").write_text("hello")
    assert "cannot be read as an image" in refused(clip, prompts=("--mask", tmp_path / "text.png"))


def test_a_prompt_after_the_end_of_the_video(sam3_stream_command, clip, tmp_path):
    """Headers lie about the end, so it is known when it comes; what was made until then stays."""
    masks = tmp_path / "out.jsonl"
    prompts = ("--click", "40,40@60", "--click", "20,20")
    outcome = sam3_stream_command("track", clip, "--model", "fake", *prompts, "--masks", masks)
    assert outcome.code == 1
    assert "the video ended before the time of a prompt was reached: 60 s" in outcome.error_line
    assert len(masks.read_text().splitlines()) == 13


def test_a_prompt_outside_of_the_part_asked_for(refused, clip):
    assert "the job ends at 0.2 s" in refused(clip, "--end", "0.2", prompts=("--click", "40,40@0.3"))
    assert "the job starts at 0.3 s" in refused(clip, "--start", "0.3", prompts=("--click", "40,40@0.1"))


def test_only_negative_clicks(refused, clip):
    assert "all clicks of 'object 1' at 0 s are negative" in refused(clip, prompts=("--click", "40,40,-"))


def test_a_phrase_and_backward(refused, clip):
    assert "backward needs a click, a box or a mask" in refused(clip, "--backward", prompts=("--text", "dog"))


@pytest.mark.parametrize(
    "option", [("--start", "inf"), ("--start", "1e300"), ("--click", "nan,3"), ("--max-frames", "0")]
)
def test_numbers_that_are_none(refused, clip, option):
    refused(clip, *option)


def test_a_url_is_not_a_file(refused):
    line = refused("rtsp://user:secret@127.0.0.1/cam")
    assert "is a URL" in line
    assert "secret" not in line


def test_names_that_no_file_can_have(refused, clip, tmp_path):
    refused("x" * 300 + ".mp4")
    refused(clip, "--davis", tmp_path / ("y" * 300))
    refused(clip, prompts=("--mask", "z" * 300 + ".png"))


def test_an_overlay_that_is_no_mp4(refused, clip, tmp_path):
    assert "write out.mp4" in refused(clip, "--overlay", tmp_path / "out.avi")


def test_no_prompt_at_all(refused, clip):
    assert "there is no prompt" in refused(clip, prompts=())


def test_a_prompt_of_another_form(refused, clip):
    assert "expected X,Y[,-][@SECONDS][#NAME]" in refused(clip, prompts=("--click", "40"))


def test_no_output_at_all(refused, clip):
    assert "there is no output" in refused(clip, outputs=False)


def test_an_output_that_exists_unless_forced(sam3_stream_command, clip, tmp_path):
    masks = tmp_path / "out.jsonl"
    masks.write_text("precious")
    arguments = ("track", clip, "--model", "fake", "--click", "40,40", "--masks", masks)
    outcome = sam3_stream_command(*arguments)
    assert outcome.code == 2
    assert "exists already" in outcome.error_line
    assert masks.read_text() == "precious"
    assert sam3_stream_command(*arguments, "--force").code == 0
    assert len(masks.read_text().splitlines()) == 13


def test_an_output_in_a_folder_that_does_not_exist(refused, clip, tmp_path):
    assert "does not exist" in refused(clip, "--overlay", tmp_path / "none" / "out.mp4")


def test_two_outputs_with_one_name(refused, clip, tmp_path):
    same = tmp_path / "same.mp4"
    assert "two outputs go to" in refused(clip, "--overlay", same, "--redact", same)
    (tmp_path / "folder").mkdir()
    assert "two outputs go to" in refused(clip, "--overlay", same, "--redact", tmp_path / "folder" / ".." / "same.mp4")


def test_resume_overwrites_nothing_that_no_killed_run_left(refused, clip, tmp_path):
    precious = tmp_path / "precious.mp4"
    precious.write_text("precious")
    assert "exists already" in refused(clip, "--resume", "--overlay", precious)
    assert precious.read_text() == "precious"


def test_the_input_is_never_overwritten(refused, clip):
    before = clip.read_bytes()
    assert "is the input itself" in refused(clip, "--overlay", clip, "--force")
    assert clip.read_bytes() == before


def test_an_unknown_model(refused, clip):
    assert "unknown model 'lit': did you mean 'lite'?" in refused(clip, "--model", "lit")


def test_an_option_that_the_model_does_not_take(sam3_stream_command, clip, tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text(
        f"source: {{path: {clip}}}\nmodel: {{name: lite, dtype: fp16}}\nprompts: [{{type: click, x: 9, y: 9}}]\n"
        f"sinks: [{{type: masks, path: {tmp_path / 'o.jsonl'}}}]\n"
    )
    outcome = sam3_stream_command("run", config)
    assert outcome.code == 2
    assert "dtype: the model lite takes no such option" in outcome.error_line


def test_a_full_disk_names_the_output_and_keeps_the_others(sam3_stream_command, clip, tmp_path):
    masks = tmp_path / "out.jsonl"
    outcome = sam3_stream_command(
        "track", clip, "--model", "fake", "--click", "40,40", "--masks", "/dev/full", "--overlay", tmp_path / "o.mp4",
        "--force",
    )  # fmt: skip
    assert outcome.code in (1, 2)
    assert "/dev/full" in outcome.error_line
    assert "No space left on device" in outcome.error_line
    assert not masks.exists()


def test_a_truncated_video_gives_what_decodes_and_says_what_is_lost(sam3_stream_command, tmp_path):
    whole = write_clip(tmp_path / "whole.mkv", frames=96)
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    masks = tmp_path / "out.jsonl"
    outcome = sam3_stream_command("track", cut, "--model", "fake", "--click", "40,40", "--masks", masks)
    assert outcome.code == 1, outcome.err
    frames = len(masks.read_text().splitlines()) - 1
    assert 20 < frames < 96
    assert str(frames) in outcome.error_line


def test_an_unknown_config_key(sam3_stream_command, tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text("source: {path: x.mp4}\nmodl: {name: lite}\nprompts: [{type: text, text: dog}]\n")
    for command in ("run", "check"):
        outcome = sam3_stream_command(command, config)
        assert outcome.code == 2
        assert "unknown key 'modl'; did you mean 'model'?" in outcome.error_line


def test_check_says_which_of_several_configs_is_wrong(sam3_stream_command, tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(
        "source: {path: x.mp4}\nprompts: [{type: text, text: dog}]\nsinks: [{type: masks, path: o.jsonl}]\n"
    )
    bad.write_text("source: 3\n")
    outcome = sam3_stream_command("check", good, bad)
    assert outcome.code == 2
    assert "good.yaml: ok" in outcome.out
    assert "bad.yaml" in outcome.error_line
