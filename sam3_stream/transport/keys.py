"""CURVE keys (https://rfc.zeromq.org/spec/26/): who may connect, and proof of whom one talks to.

A folder of keys holds one machine's own pair, ``own.key_secret``, and in ``trusted/`` the public keys of all that it
talks to, its own included. `sam3-stream keys DIR` makes it; copying a ``.key`` file into ``trusted/`` lets somebody in.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from sam3_stream.core.errors import ConfigError, OutputError

SECRET_NAME = "own.key_secret"
TRUSTED_NAME = "trusted"

_authenticators: dict[zmq.Context[Any], ThreadAuthenticator] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class KeyRing:
    """One machine's key pair, the public keys it trusts, and the key of the machine it connects to.

    Attributes:
        public: Own public key, Z85.
        secret: Own secret key, Z85.
        trusted: Folder of public keys that may connect.
        server: Public key of the machine to connect to, Z85.
    """

    public: bytes
    secret: bytes
    trusted: Path
    server: bytes

    def __repr__(self) -> str:
        return f"KeyRing(public={self.public.decode()}, trusted={str(self.trusted)!r})"

    def guard_server(self, socket: zmq.Socket[bytes]) -> None:
        """Let only trusted keys connect to a socket that will be bound."""
        domain = _authenticate(socket.context, self.trusted)
        socket.curve_secretkey = self.secret
        socket.curve_publickey = self.public
        socket.curve_server = True
        socket.setsockopt(zmq.ZAP_DOMAIN, domain.encode())

    def guard_client(self, socket: zmq.Socket[bytes]) -> None:
        """Have a socket that will connect talk to the server's key only."""
        socket.curve_secretkey = self.secret
        socket.curve_publickey = self.public
        socket.curve_serverkey = self.server


def make_keys(folder: Path, name: str = "own") -> Path:
    """Make a key pair in a folder: ``own.key_secret``, and ``trusted/NAME.key`` to be given to the others.

    Returns:
        The public key's file.

    Raises:
        OutputError: The folder holds keys already, or cannot be written.
    """
    secret = folder / SECRET_NAME
    trusted = folder / TRUSTED_NAME
    if secret.exists():
        raise OutputError(f"{folder} holds keys already; give another folder")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        trusted.mkdir(exist_ok=True)
        made_public, made_secret = zmq.auth.create_certificates(folder, name)
        Path(made_secret).chmod(0o600)
        Path(made_secret).rename(secret)
        return Path(made_public).rename(trusted / f"{name}.key")
    except OSError as error:
        raise OutputError(f"cannot make keys in {folder}: {error.strerror}") from error


def load_keys(folder: Path, server: str | None = None) -> KeyRing:
    """Read a folder of keys.

    Args:
        folder: As `make_keys` made it.
        server: Name of the trusted key, without ``.key``, of the machine to connect to; the own key when None, which
            fits where all machines share one folder.

    Raises:
        ConfigError: A key is missing or is none.
    """
    secret_file = folder / SECRET_NAME
    public, secret = _read(secret_file)
    if secret is None:
        raise ConfigError(f"{secret_file} holds no secret key; make one with 'sam3-stream keys {folder}'")
    server_key = public if server is None else _read(folder / TRUSTED_NAME / f"{server}.key")[0]
    return KeyRing(public, secret, folder / TRUSTED_NAME, server_key)


def _read(path: Path) -> tuple[bytes, bytes | None]:
    try:
        return zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the key {path}; 'sam3-stream keys DIR' makes keys") from error


def _authenticate(context: zmq.Context[Any], trusted: Path) -> str:
    """Have the context's one authenticator read a folder of trusted keys; the domain that it guards with them."""
    domain = hashlib.sha256(str(trusted.absolute()).encode()).hexdigest()
    with _lock:
        if context not in _authenticators:
            _authenticators[context] = ThreadAuthenticator(context)
            _authenticators[context].start()
        _authenticators[context].configure_curve(domain=domain, location=trusted)
    return domain


def stop_authenticating(context: zmq.Context[Any]) -> None:
    """Stop the context's authenticator, if it has one, so that the context can be ended."""
    with _lock:
        authenticator = _authenticators.pop(context, None)
    if authenticator is not None:
        authenticator.stop()
