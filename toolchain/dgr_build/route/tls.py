"""What a client shows to workers over TLS, and whom it trusts; checked before it connects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dgr_build.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.x509 import Certificate

    from dgr_build.documents.tls import Tls

_RENEW = "renew it; for trials, make new ones: dgr-build certs dev FOLDER"


@dataclass(frozen=True, kw_only=True)
class ClientTls:
    """The side of a client.

    Args:
        ca: PEM file of the authority that signed the certificates of the workers.
        cert: PEM file of the client's own certificate, None where workers ask for none.
        key: PEM file of its private key.
    """

    ca: Path
    cert: Path | None = None
    key: Path | None = None

    @staticmethod
    def of(tls: Tls | None) -> ClientTls | None:
        """Return the client's side of a route's certificates; None for a route in plaintext."""
        return None if tls is None else ClientTls(ca=tls.ca, cert=tls.cert, key=tls.key)

    def credentials(self) -> Any:
        """Return what gRPC connects with.

        Raises:
            UsageError: a file cannot be read, is not what it should be, has expired, or does not fit the
                others.
        """
        roots = _read(self.ca)
        _require_time(self.ca, _certificates(self.ca, roots)[0])
        if self.cert is None or self.key is None:
            return grpc.ssl_channel_credentials(roots)
        chain, key = _read(self.cert), _read(self.key)
        own = _certificates(self.cert, chain)[0]
        _require_time(self.cert, own)
        _require_fit(self.cert, own, self.key, key)
        return grpc.ssl_channel_credentials(roots, key, chain)


def channel(address: str, tls: ClientTls | None, options: list[tuple[str, Any]]) -> Any:
    """Return a channel to a worker, in plaintext where there are no certificates."""
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, tls.credentials(), options=options)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}",
            cause=error.strerror or str(error),
            remedy="name a PEM file that you can read; for trials: dgr-build certs dev FOLDER",
        ) from error


def _certificates(path: Path, pem: bytes) -> list[Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise UsageError(
            f"{path} is no PEM certificate",
            cause=str(error),
            remedy=f"look at it with: openssl x509 -noout -text -in {path}",
        ) from error


def _require_time(path: Path, cert: Certificate) -> None:
    now = datetime.now(UTC)
    if cert.not_valid_after_utc < now:
        raise UsageError(
            f"the certificate in {path} has expired", cause=f"on {cert.not_valid_after_utc}", remedy=_RENEW
        )
    if cert.not_valid_before_utc > now:
        raise UsageError(
            f"the certificate in {path} is not valid yet",
            cause=f"it is from {cert.not_valid_before_utc} on",
            remedy="set the clock of this machine, or wait",
        )


def _require_fit(cert_path: Path, cert: Certificate, key_path: Path, pem: bytes) -> None:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:  # TypeError: there is a passphrase
        raise UsageError(
            f"{key_path} is no PEM private key that can be read",
            cause=str(error),
            remedy="name a key without a passphrase",
        ) from error
    if key.public_key() != cert.public_key():
        raise UsageError(
            f"the key in {key_path} is not that of the certificate in {cert_path}",
            remedy="name the key that was made with that certificate",
        )
