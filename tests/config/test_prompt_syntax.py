"""The short forms of prompts on the command line."""

from __future__ import annotations

import pytest

from sam3_stream.config.prompt_syntax import parse_box, parse_click, parse_mask
from sam3_stream.core.errors import PromptError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("320,240", {"x": 320, "y": 240, "positive": True}),
        ("3.5,4.25", {"x": 3.5, "y": 4.25, "positive": True}),
        ("320,240,-", {"x": 320, "y": 240, "positive": False}),
        ("320,240@1.5", {"x": 320, "y": 240, "positive": True, "time_s": 1.5}),
        ("320,240#dog", {"x": 320, "y": 240, "positive": True, "name": "dog"}),
        ("320,240,-@2#big dog", {"x": 320, "y": 240, "positive": False, "time_s": 2, "name": "big dog"}),
    ],
)
def test_click(text, expected):
    assert parse_click(text) == {"type": "click", **expected}


def test_box():
    assert parse_box("1,2,30,40@0.5#car") == {
        "type": "box",
        "x0": 1,
        "y0": 2,
        "x1": 30,
        "y1": 40,
        "time_s": 0.5,
        "name": "car",
    }


def test_mask_and_a_file_whose_name_looks_like_a_prompt(tmp_path):
    assert parse_mask("car.png@2#car") == {"type": "mask", "path": "car.png", "time_s": 2, "name": "car"}
    odd = tmp_path / "frame@2#car"
    odd.touch()
    assert parse_mask(str(odd)) == {"type": "mask", "path": str(odd)}


@pytest.mark.parametrize(
    "text", ["", "320", "320,abc", "1,2,3", "320,240@", "320,240@1.2.3", "320;240", "@1", "1,2,-,-"]
)
def test_a_click_of_another_form_says_what_was_expected(text):
    with pytest.raises(PromptError, match=r"expected X,Y\[,-\]\[@SECONDS\]\[#NAME\], such as"):
        parse_click(text)


def test_a_box_of_another_form_says_what_was_expected():
    with pytest.raises(PromptError, match=r"expected X0,Y0,X1,Y1"):
        parse_box("1,2,3")
