"""Runs the live preview from the command line."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from rich.console import Console

from sam3_stream.cli.demo import demo_clip
from sam3_stream.cli.signals import stopping_on_signals
from sam3_stream.config.loading import parse_config
from sam3_stream.config.preview import PreviewConfig
from sam3_stream.core.errors import ConfigError


def preview_config() -> PreviewConfig:
    """The preview of the demo clip, which plays forth and back, so that it has no cut."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sam3_stream"
    tree = {"streams": [{"name": "bunny", "source": {"type": "file", "path": demo_clip()}}], "state_folder": folder}
    return parse_config(tree, where="demo", kind=PreviewConfig)


def serve(config: PreviewConfig, *, console: Console, quiet: bool) -> None:
    """Serve the preview until Ctrl-C or SIGTERM.

    Raises:
        UsageError: It cannot be served as asked.
    """
    try:
        from sam3_stream.build_preview import PreviewService
        from sam3_stream.server.access import Token
        from sam3_stream.server.app import preview_app
        from sam3_stream.server.serving import is_loopback, listen, make_server
        from sam3_stream.transport.webrtc.candidates import media_addresses, offer_only
    except ImportError as error:
        raise ConfigError(f"serve needs more packages ({error.name}): pip install 'sam3-stream[server]'") from error
    logging.basicConfig(format="%(message)s", level=logging.ERROR if quiet else logging.WARNING)
    for noisy in ("aioice", "aiortc"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    host = config.preview.host
    token = None if is_loopback(host) else Token(_secret(config, console))
    media = media_addresses(host, config.preview.media_hosts)
    offer_only(media)
    with (
        listen(host, config.preview.port) as listening,
        contextlib.ExitStack() as stopping,
        PreviewService(config) as service,
    ):
        port = listening.getsockname()[1]
        names = (host, "localhost", "127.0.0.1", "::1", *media, *config.preview.allowed_hosts)
        server = make_server(preview_app(service, config, hosts=names, token=token))
        # uvicorn raises what it was stopped by again, which would end the process before the state is kept.
        stopping.enter_context(stopping_on_signals(server.handle_exit))
        service.start()
        if not quiet:
            shown = f"[{host}]" if ":" in host else host
            who = "this machine only" if token is None else "whoever has the token"
            console.print(f"page and API: http://{shown}:{port}/ ({who})", highlight=False, soft_wrap=True)
            console.print(f"media: WebRTC over UDP on {', '.join(media)}", highlight=False, soft_wrap=True)
        server.run(sockets=[listening])


def _secret(config: PreviewConfig, console: Console) -> str:
    """The token that opens the server to other machines, shown when it is made."""
    from sam3_stream.server.access import token_of

    folder = config.state_folder
    if folder is None:
        raise ConfigError(
            f"to listen on {config.preview.host} a token is needed, and a place for it: set state_folder in the config"
        )
    secret, is_new = token_of(folder)
    said = (
        f"token, shown this once: {secret}" if is_new else f"the token was shown at first start; see {folder / 'token'}"
    )
    console.print(said, highlight=False, soft_wrap=True)
    return secret
