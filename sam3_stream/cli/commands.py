"""The commands of `sam3-stream`: they parse, call and print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.exceptions
from rich.console import Console

from sam3_stream.cli.demo import demo_config
from sam3_stream.cli.groups import run_groups
from sam3_stream.cli.live_running import run_live
from sam3_stream.cli.running import run_job
from sam3_stream.cli.serving import preview_config
from sam3_stream.cli.serving import serve as run_server
from sam3_stream.config.live import LiveJobConfig
from sam3_stream.config.loading import job_schema, load_config, parse_config
from sam3_stream.config.models import JobConfig
from sam3_stream.config.preview import PreviewConfig
from sam3_stream.config.prompt_syntax import parse_box, parse_click, parse_mask
from sam3_stream.core.errors import ConfigError, OutputError, Sam3StreamError
from sam3_stream.transport.keys import SECRET_NAME, make_keys

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Live video in, tracked masks out, at the frame rate you asked for.",
)

QuietOption = Annotated[bool, typer.Option("--quiet", help="Print nothing on the way; errors still go to stderr.")]


@app.command()
def track(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="A video, or a folder of images in name order.")],
    model: Annotated[
        str, typer.Option(help="lite, sam3, a folder with SAM 3 weights, or a Hugging Face hub id.")
    ] = "lite",
    click: Annotated[
        list[str] | None,
        typer.Option(metavar="X,Y[,-][@SECONDS][#NAME]", help="A pixel on the object, or with ,- one that is not."),
    ] = None,
    box: Annotated[
        list[str] | None, typer.Option(metavar="X0,Y0,X1,Y1[@SECONDS][#NAME]", help="A box around the object.")
    ] = None,
    mask: Annotated[
        list[str] | None, typer.Option(metavar="PNG[@SECONDS][#NAME]", help="The object's mask, of the video's size.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="PHRASE", help="Every object that the phrase names.")
    ] = None,
    overlay: Annotated[Path | None, typer.Option(metavar="OUT.mp4", help="The video with the objects drawn.")] = None,
    masks: Annotated[Path | None, typer.Option(metavar="OUT.jsonl", help="Ids, scores, boxes and RLE masks.")] = None,
    davis: Annotated[Path | None, typer.Option(metavar="DIR", help="Indexed PNGs in DAVIS layout.")] = None,
    cutout: Annotated[
        Path | None, typer.Option(metavar="OUT.webm|DIR", help="The objects alone on transparency: a video or PNGs.")
    ] = None,
    redact: Annotated[
        Path | None, typer.Option(metavar="OUT.mp4", help="The video with the objects pixelated beyond recovery.")
    ] = None,
    start: Annotated[float | None, typer.Option(metavar="S", help="Start here, in seconds.")] = None,
    end: Annotated[float | None, typer.Option(metavar="S", help="End before this time, in seconds.")] = None,
    max_frames: Annotated[int | None, typer.Option(metavar="N", help="Stop after this many frames.")] = None,
    backward: Annotated[
        bool, typer.Option("--backward", help="Carry the prompts to the frames before them, too.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the masks file of a killed run ends.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    target_fps: Annotated[
        float | None,
        typer.Option(metavar="FPS", help="Come out with so many frames a second, at what quality that leaves."),
    ] = None,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Play the file like a camera; what there is no time for is lost.")
    ] = False,
    min_resolution: Annotated[
        int | None, typer.Option(metavar="PX", help="Never show the model a picture with a shorter side of less.")
    ] = None,
    max_skip: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most frames in a row that may go without the model; 4 if not given."),
    ] = None,
    max_latency_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="With --realtime: later frames are lost; 500 if not given.")
    ] = None,
    give_up: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="The order of detection, resolution and skip; leave out to keep."),
    ] = None,
    carry: Annotated[
        str | None, typer.Option(help="Masks of skipped frames: propagated (the default) or held.")
    ] = None,
    show_rate: Annotated[bool, typer.Option("--show-rate", help="Write the rate's facts onto the overlay.")] = False,
    quiet: QuietOption = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite outputs that exist.")] = False,
) -> None:
    """Track objects through a video.

    Coordinates are pixels of the picture as it is displayed; times are seconds from the start of the video. Prompts
    with the same #NAME speak of one object and label it. Objects are numbered in order: clicks, boxes, masks, phrases.
    """
    prompts = [
        *(parse_click(each) for each in click or ()),
        *(parse_box(each) for each in box or ()),
        *(parse_mask(each) for each in mask or ()),
        *({"type": "text", "text": each} for each in text or ()),
    ]
    outputs = {"overlay": overlay, "masks": masks, "davis": davis, "cutout": cutout, "redact": redact}
    sinks: list[dict[str, Any]] = [{"type": kind, "path": path} for kind, path in outputs.items() if path is not None]
    for sink in sinks:
        if sink["type"] == "overlay":
            sink["show_rate"] = show_rate
    limits = {
        "target_fps": target_fps,
        "min_resolution": min_resolution,
        "max_skip": max_skip,
        "max_latency_ms": max_latency_ms,
        "give_up": None if give_up is None else [each.strip() for each in give_up.split(",")],
        "carry": carry,
    }
    tree: dict[str, Any] = {
        "source": {"path": source, "start_s": start, "end_s": end, "max_frames": max_frames, "realtime": realtime},
        "model": {"name": model, "device": device},
        "prompts": prompts,
        "sinks": sinks,
        "backward": backward,
        "resume": resume,
        "force": force,
        **{name: value for name, value in limits.items() if value is not None},
    }
    _run(parse_config(tree, where="arguments"), quiet)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="path.to.field=value", help="Change a value of the config.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Run this process group here; the others run elsewhere.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Run the job that a config describes, in as many processes as it says, or live streams until they are stopped."""
    job = load_config(config, overrides or ())
    if isinstance(job, PreviewConfig):
        raise ConfigError(f"{config} is for 'sam3-stream serve', which it describes with its preview section")
    if isinstance(job, LiveJobConfig):
        _report(run_live(job, console=Console(stderr=True), quiet=quiet))
    elif only is None and len(job.processes.groups) == 1:
        _run(job, quiet)
    else:
        raise typer.Exit(run_groups(job, only, console=Console(stderr=True), quiet=quiet))


@app.command()
def serve(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.yaml]")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="path.to.field=value", help="Change a value of the config.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; any but loopback asks for a token.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Serve a page to watch live streams, point at things and see them tracked; the demo clip without a config."""
    preview = preview_config() if config is None else load_config(config, overrides or ())
    if not isinstance(preview, PreviewConfig):
        raise ConfigError(f"{config} is for 'sam3-stream run'; serve needs a config with a preview section")
    where = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    preview = preview.model_copy(update={"preview": preview.preview.model_copy(update=where)})
    run_server(preview, console=Console(stderr=True), quiet=quiet)


@app.command()
def check(configs: Annotated[list[Path], typer.Argument(metavar="CONFIG.yaml…")]) -> None:
    """Check configs without running them; exit code 2 when one is wrong."""
    wrong = False
    for path in configs:
        try:
            load_config(path)
        except ConfigError as error:
            wrong = True
            _complain(error)
        else:
            typer.echo(f"{path}: ok")
    if wrong:
        raise typer.Exit(ConfigError.exit_code)


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the keys.")],
    name: Annotated[str, typer.Option(help="What others call this machine or program.")] = "own",
) -> None:
    """Make a pair of CURVE keys, without which no address is open to other machines.

    DIR/own.key_secret stays here. Whoever has DIR/trusted/NAME.key in their own trusted folder talks to us and only to
    us; whoever's key lies in DIR/trusted may connect.
    """
    typer.echo(f"made {folder / SECRET_NAME}; give the others {make_keys(folder, name)}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of a config: a job from a file to its outputs, or live streams."""
    typer.echo(json.dumps(job_schema(), indent=2))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the results go.")] = Path("demo_out"),
    quiet: QuietOption = False,
) -> None:
    """Track the bunny in the Big Buck Bunny clip with the embedded model."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"the folder {out} cannot be made: {error.strerror}; name another with --out") from error
    _run(demo_config(out), quiet)


def run_app() -> int:
    """Run the command line; every problem that is foreseen is one line on stderr. Returns the exit code."""
    try:
        return int(app(standalone_mode=False) or 0)
    except typer.exceptions.TyperException as error:
        message = getattr(error, "format_message", error.__str__)()
        if message:  # none when all it has to say is the help
            _complain(message)
        return int(getattr(error, "exit_code", 1))
    except Sam3StreamError as error:
        _complain(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our stdout is gone (… | head): nothing is left to say, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(config: JobConfig, quiet: bool) -> None:
    _report(run_job(config, console=Console(stderr=True), quiet=quiet))


def _report(errors: Sequence[BaseException]) -> None:
    """Say what went wrong, and exit with the code of the first."""
    for error in errors:
        _complain(error)
    if errors:
        raise typer.Exit(getattr(errors[0], "exit_code", 1))


def _complain(error: BaseException | str) -> None:
    typer.echo(f"sam3-stream: error: {' '.join(str(error).split())}", err=True)
