"""The page in a real Chromium, on a server that a person would start: `sam3-stream serve`."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from tests.support.preview_server import PreviewServer, Results
from tests.transport.edges import eventually

sync_api = pytest.importorskip("playwright.sync_api", reason="drives the page with playwright")
expect = sync_api.expect

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

SIZE = (1280, 720)
FRAMES = 132  # of the demo clip, which is played forth and back
STANDS_FROM = 50  # the bunny climbs out of its hole before
BELLY = slice(300, 500), slice(400, 520)
SCREENSHOTS = os.environ.get("SAM3_STREAM_SCREENSHOTS", "")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[PreviewServer]:
    server = PreviewServer(state=tmp_path_factory.mktemp("state"))
    yield server
    assert server.close() == ""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *camera])
        yield browser
        browser.close()


@pytest.fixture
def open_page(server, chromium) -> Iterator[Any]:
    """Opens the page in a browser profile of its own; nothing may be complained about in any of them."""
    complaints: list[str] = []
    contexts = []

    def open_page(**options: Any) -> Any:
        contexts.append(chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | options)))
        page = contexts[-1].new_page()
        page.on(
            "console", lambda each: complaints.append(f"{each.text} {each.location}") if each.type == "error" else 0
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url)
        expect(page.locator("#connection")).to_have_attribute("data-state", "live", timeout=20_000)
        plays(page)
        return page

    yield open_page
    for each in contexts:
        each.close()
    for prompt in server.api("GET", "/streams/bunny/prompts"):
        server.api("DELETE", f"/streams/bunny/prompts/{prompt['id']}")
    assert complaints == []


@pytest.fixture
def results(server) -> Iterator[Results]:
    results = Results(server, "bunny")
    yield results
    results.close()


def plays(page, video: str = "video") -> None:
    """Wait until the video has gone on for half a second."""
    time_s = f"document.getElementById('{video}').currentTime"
    begin_s = page.evaluate(time_s)
    eventually(lambda: page.wait_for_timeout(100) or not begin_s <= page.evaluate(time_s) < begin_s + 0.5, 20)


def place(row: dict[str, Any]) -> int:
    """The frame of the clip that a frame of the stream shows."""
    number = row["frame"] % (2 * FRAMES - 2)
    return number if number < FRAMES else 2 * FRAMES - 2 - number


def mask_of(row: dict[str, Any], object_id: int) -> np.ndarray:
    """An object's mask on a frame, boolean (720, 1280); empty where there is none."""
    for each in row["objects"]:
        if each["id"] == object_id and each["present"]:
            return coco_mask.decode(each["rle"]).astype(bool)
    return np.zeros(SIZE[::-1], bool)


def on_stage(page, x: float, y: float) -> dict[str, float]:
    """Where a pixel of the video is on the stage."""
    box = page.locator("#stage").bounding_box()
    scale = min(box["width"] / SIZE[0], box["height"] / SIZE[1])
    left, top = (box["width"] - scale * SIZE[0]) / 2, (box["height"] - scale * SIZE[1]) / 2
    return {"x": left + x * scale, "y": top + y * scale}


def wait_until_it_stands(results: Results) -> None:
    """Until the bunny stands, and will for the next two seconds."""
    next(row for row in results.next_rows() if STANDS_FROM + 10 <= place(row) < 100 or place(row) > 125)


def click_the_bunny(page, results: Results) -> int:
    """Click the belly; the id of the object that this makes."""
    wait_until_it_stands(results)
    before = page.locator("#objects li").count()
    page.locator("#stage").click(position=on_stage(page, 460, 400))
    expect(page.locator("#objects li")).to_have_count(before + 1, timeout=10_000)
    return max(each["id"] for each in next(results.next_rows())["objects"])


def belly_on_screen(page, results: Results) -> np.ndarray:
    """The mean colour, RGB, of the belly in a screenshot that was made while the bunny stood."""
    wait_until_it_stands(results)
    picture = np.asarray(Image.open(io.BytesIO(page.locator("#stage").screenshot())).convert("RGB"), np.float64)
    corners = on_stage(page, 420, 330), on_stage(page, 500, 470)
    (left, top), (right, bottom) = ((int(each["x"]), int(each["y"])) for each in corners)
    return picture[top:bottom, left:right].mean((0, 1))


def color_of(row: dict[str, Any], object_id: int) -> np.ndarray:
    text = next(each["color"] for each in row["objects"] if each["id"] == object_id)
    return np.array([int(text[index : index + 2], 16) for index in (1, 3, 5)], float)


def test_a_click_makes_an_object_that_covers_the_bunny_and_follows_it(open_page, results):
    page = open_page()
    plain = belly_on_screen(page, results)
    bunny = click_the_bunny(page, results)
    rows = list(itertools.islice(results.next_rows(), 150))
    standing = [mask_of(row, bunny) for row in rows if place(row) >= STANDS_FROM]
    assert len(standing) > 50
    assert np.median([mask[BELLY].mean() for mask in standing]) > 0.95
    assert min(mask[BELLY].mean() for mask in standing) > 0.6
    for row in rows:
        mask = mask_of(row, bunny)
        assert mask.any(), f"the bunny is lost on frame {place(row)} of the clip"
        assert mask[:, 800:].sum() < 0.05 * mask.sum(), "the stones and the sky do not belong to it"
    drawn = belly_on_screen(page, results)
    toward = color_of(rows[-1], bunny) - plain
    assert (drawn - plain) @ toward / np.linalg.norm(toward) > 10, f"{plain} and {drawn} on the screen"


def test_shift_click_takes_a_part_away(open_page, results):
    page = open_page()
    bunny = click_the_bunny(page, results)
    row = next(row for row in results.next_rows() if 108 <= row["frame"] % (2 * FRAMES - 2) < 114)
    mask = mask_of(row, bunny)
    x, y = 513, 605  # a foot; it stands still from here to the turn and back
    assert mask[y - 4 : y + 4, x - 4 : x + 4].mean() > 0.5, "else this shows nothing"
    page.locator("#stage").click(position=on_stage(page, x, y), modifiers=["Shift"])
    after = list(itertools.islice(results.next_rows(), 25))
    shares = [mask_of(row, bunny)[y - 4 : y + 4, x - 4 : x + 4].mean() for row in after]
    assert np.mean(shares[2:12]) < 0.2, f"it stays, or comes back: {shares}"
    assert all(mask_of(row, bunny).any() for row in after), "the rest stays"


def test_a_phrase_finds_the_rabbit_and_is_removed(open_page, results):
    page = open_page()
    page.get_by_label("Track by name").fill("rabbit")
    page.keyboard.press("Enter")
    expect(page.locator("#prompts li .words")).to_have_text("rabbit")
    expect(page.get_by_label("Delete rabbit").first).to_be_visible(timeout=90_000)
    row = next(row for row in results.next_rows() if any(each["present"] for each in row["objects"]))
    found = mask_of(row, next(each["id"] for each in row["objects"] if each["present"]))
    assert found[:, :700].sum() > 0.9 * found.sum(), "the bunny is left of the middle, and the stones are right of it"
    page.get_by_label("Remove the phrase rabbit").click()
    expect(page.locator("#objects li")).to_have_count(0)
    expect(page.locator("#prompts li")).to_have_count(0)


def test_what_is_tracked_outlives_a_reload_and_all_tabs_see_it(open_page, results):
    page, other = open_page(), open_page()
    click_the_bunny(page, results)
    name = page.locator("#objects .name")
    name.fill("Buck")
    name.press("Enter")
    expect(other.locator("#objects .name")).to_have_value("Buck", timeout=10_000)
    page.reload()
    expect(page.locator("#objects .name")).to_have_value("Buck", timeout=20_000)
    page.get_by_label("Delete Buck").click()
    for each in (page, other):
        expect(each.locator("#objects li")).to_have_count(0)
        expect(each.locator("#no-objects")).to_be_visible()


def test_all_by_keyboard(open_page, results):
    page = open_page()
    wait_until_it_stands(results)
    page.locator("#stage").focus()
    for key, times in (("ArrowLeft", 15), ("ArrowDown", 3)):
        for _ in range(times):
            page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator("#objects li")).to_have_count(1, timeout=10_000)
    row = next(row for row in results.next_rows() if row["objects"] and place(row) >= STANDS_FROM)
    assert mask_of(row, row["objects"][0]["id"])[BELLY].mean() > 0.6


def test_a_shared_camera_comes_back_as_a_stream(open_page, server):
    page = open_page()
    page.get_by_role("button", name="Share my camera").click()
    expect(page.locator("#stream-select")).to_have_value("shared-camera", timeout=20_000)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live", timeout=20_000)
    plays(page)
    picture = np.asarray(Image.open(io.BytesIO(page.locator("#stage").screenshot())).convert("RGB"), int)
    green = (picture[..., 1] > 150) & (picture[..., 0] < 110) & (picture[..., 2] < 110)
    assert green.mean() > 0.2, "Chromium's test device shows a green picture"
    page.get_by_role("button", name="Stop sharing my camera").click()
    page.close()
    server.api("DELETE", "/streams/shared-camera")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(open_page, results, scheme):
    page = open_page(viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    wait_until_it_stands(results)
    page.locator("#stage").tap(position=on_stage(page, 460, 400))
    expect(page.locator("#objects li")).to_have_count(1, timeout=10_000)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(int(each) for each in background.strip("rgba()").split(",")[:3]) / 3
    assert (lightness > 128) == (scheme == "light")
    if scheme == "dark":
        keep_screenshot(page, "phone-dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_desktop(open_page, results, scheme):
    page = open_page(color_scheme=scheme)
    click_the_bunny(page, results)
    page.wait_for_timeout(3000)
    wait_until_it_stands(results)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    if scheme == "light":
        keep_screenshot(page, "desktop-light")


@pytest.fixture(scope="module")
def whep_player(tmp_path_factory) -> str:
    """The WHEP client that the authors of WHEP publish on npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("npm")
    packed = subprocess.run(
        [npm, "pack", "whip-whep@1.2.0"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if packed.returncode:
        pytest.skip(f"the npm registry does not answer: {packed.stderr[-200:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        player = archive.extractfile("package/whep.js")
        assert player is not None
        return player.read().decode()


def test_a_player_from_npm_plays(open_page, whep_player):
    page = open_page()
    page.route("**/static/whep.js", lambda route: route.fulfill(body=whep_player, content_type="text/javascript"))
    page.evaluate(
        """async () => {
            const { WHEPClient } = await import("/static/whep.js");
            const peer = new RTCPeerConnection();
            peer.addTransceiver("video", { direction: "recvonly" });
            const video = document.createElement("video");
            Object.assign(video, { id: "other", muted: true, autoplay: true });
            document.body.append(video);
            peer.ontrack = ({ track }) => (video.srcObject = new MediaStream([track]));
            await new WHEPClient().view(peer, `${location.origin}/whep/bunny`);
        }"""
    )
    plays(page, video="other")
    assert page.evaluate("document.getElementById('other').videoWidth") == 1280


def keep_screenshot(page, name: str) -> None:
    """For the README, where `scripts/screenshots` asks for it."""
    if SCREENSHOTS:
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.save(Path(SCREENSHOTS) / f"page-{name}.jpg", quality=85, optimize=True)
