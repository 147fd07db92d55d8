"""How a running job shows itself: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import TrackedFrame

_LINE_INTERVAL_S = 5.0


class _FpsColumn(ProgressColumn):
    """Frames per second, counted over rich's speed window."""

    def render(self, task: Task) -> Text:
        return Text("-- fps" if task.speed is None else f"{task.speed:.1f} fps")


def show_progress(
    frames: Iterable[TrackedFrame],
    *,
    title: str,
    total: int | None,
    console: Console,
    quiet: bool,
    clock: Clock | None = None,
) -> Iterator[TrackedFrame]:
    """Pass frames through while showing how far the job is: frames, fps, time left, objects.

    Args:
        frames: What to pass through.
        title: What is being done, such as ``"tracking"``.
        total: How many frames are expected; None when nobody knows.
        console: Where to show it. A bar when it is a terminal, a plain line every five seconds when it is not.
        quiet: Show nothing on the way; the lines at the end still come.
        clock: For the plain lines; the machine's own when None.
    """
    if quiet:
        yield from frames
    elif console.is_terminal:
        yield from _with_bar(frames, title, total, console)
    else:
        yield from _with_lines(frames, title, total, console, clock or SystemClock())


def say(console: Console, text: str) -> None:
    """Print a plain line; names of files are not markup. A reader that went away does not stop the work."""
    with contextlib.suppress(BrokenPipeError):
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _with_bar(
    frames: Iterable[TrackedFrame], title: str, total: int | None, console: Console
) -> Iterator[TrackedFrame]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _FpsColumn(),
        TextColumn("{task.fields[objects]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, objects="")
        for tracked in frames:
            yield tracked
            progress.update(task, advance=1, objects=_objects_in(tracked))


def _with_lines(
    frames: Iterable[TrackedFrame], title: str, total: int | None, console: Console, clock: Clock
) -> Iterator[TrackedFrame]:
    started_s = last_s = clock.monotonic_s()
    for count, tracked in enumerate(frames):
        yield tracked
        now_s = clock.monotonic_s()
        if count == 0:
            started_s = now_s  # loading the model is not part of the rate
        elif now_s - last_s >= _LINE_INTERVAL_S:
            last_s = now_s
            fps = count / (now_s - started_s)
            left = "" if total is None else f", {max(0, total - count - 1) / fps:.0f} s left"
            of = "" if total is None else f"/{total}"
            say(console, f"{title}: frame {count + 1}{of}, {fps:.1f} fps, {_objects_in(tracked)}{left}")


def _objects_in(tracked: TrackedFrame) -> str:
    present = len(tracked.present)
    rate = "" if tracked.rate is None else f", {tracked.rate}"
    return f"{present} object{'' if present == 1 else 's'}{rate}"
