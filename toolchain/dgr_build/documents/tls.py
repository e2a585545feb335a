"""Where the certificates of a route lie: PEM files, by name."""

from __future__ import annotations

from pathlib import Path

from dgr_build.documents.base import Document

CA = "ca.pem"
CLIENT = "client"
WORKER = "worker"


def cert_name(holder: str) -> str:
    """Return the name of a holder's certificate in a folder that `dgr-build certs dev` made."""
    return f"{holder}.pem"


def key_name(holder: str) -> str:
    """Return the name of a holder's key there."""
    return f"{holder}-key.pem"


class Tls(Document):
    """The certificates of a route whose stages and client know each other by mutual TLS.

    Attributes:
        ca: the authority that signed all the others.
        cert: what the client shows.
        key: the client's private key.
        worker_cert: what workers show that are started for the route; it must name 127.0.0.1.
        worker_key: their private key.
    """

    ca: Path
    cert: Path
    key: Path
    worker_cert: Path
    worker_key: Path

    @staticmethod
    def of_folder(folder: Path) -> Tls:
        """Return the files of a folder that `dgr-build certs dev` made."""
        return Tls(
            ca=folder / CA,
            cert=folder / cert_name(CLIENT),
            key=folder / key_name(CLIENT),
            worker_cert=folder / cert_name(WORKER),
            worker_key=folder / key_name(WORKER),
        )

    def seen_from(self, folder: Path) -> Tls:
        """Return the same files by absolute names; relative ones are meant from a folder."""
        return Tls(**{name: folder.absolute() / path for name, path in self})
