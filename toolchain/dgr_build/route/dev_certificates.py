"""Certificates for trials: a throw-away authority, and what workers and a client need to know each other."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dgr_build.documents import tls
from dgr_build.errors import UsageError
from dgr_build.workspace import staging, write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DAYS = 30
_HERE = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9][a-z0-9_-]{0,62}\.)*[a-z][a-z0-9_-]{0,62}", re.IGNORECASE)
_SKEW = timedelta(minutes=5)  # the clocks of several machines differ
_NOTE = """Certificates for trials, made by dgr-build certs dev. Valid until {until}.

The authority's key was thrown away, so nothing can be added: make a new folder instead. Do not serve real
prompts with these: nobody revokes them, and whoever copies a key file is whom it names.
"""


@dataclass(frozen=True, kw_only=True)
class DevCertificates:
    """What was made.

    Args:
        folder: where it lies.
        until: the end of its validity.
        workers: the name of each worker's certificate, by host; "" is for workers on loopback.
    """

    folder: Path
    until: datetime
    workers: dict[str, str]


def make_dev_certificates(folder: Path, hosts: Sequence[str] = (), *, days: int = DAYS) -> DevCertificates:
    """Make a folder with the certificate of an authority, and certificate and key of workers and a client.

    Args:
        folder: it must not be there yet.
        hosts: names or addresses that workers of other machines are reached by; each gets a certificate.
        days: how long they are valid.

    Raises:
        UsageError: the folder is there, or a host is neither a name nor an address.
    """
    for host in hosts:
        _require_host(host)
    if folder.exists() or folder.is_symlink():
        raise _taken(folder)
    now = datetime.now(UTC)
    authority = _Authority(now - _SKEW, now + timedelta(days=days))
    names = {"": tls.WORKER, **{host: f"{tls.WORKER}-{host.replace(':', '_')}" for host in hosts}}
    with staging(folder.absolute().parent, folder.name) as staged:
        staged.chmod(0o700)
        write_atomic(staged / tls.CA, _pem(authority.cert))
        for host, name in names.items():
            authority.issue(staged, name, (host,) if host else _HERE)
        authority.issue(staged, tls.CLIENT, ())
        note = _NOTE.format(until=f"{authority.until:%Y-%m-%d %H:%M} UTC")
        write_atomic(staged / "README.txt", note.encode())
        write_atomic(staged / ".gitignore", b"*\n")  # keys are no part of anybody's history
        try:
            staged.rename(folder)
        except OSError as error:  # made by somebody else meanwhile
            raise _taken(folder) from error
    files = {host: tls.cert_name(name) for host, name in names.items()}
    return DevCertificates(folder=folder, until=authority.until, workers=files)


class _Authority:
    """A key that signs, and is forgotten with this object."""

    def __init__(self, begin: datetime, until: datetime) -> None:
        self.begin, self.until = begin, until
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("dgr-build trial authority")
        key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self.cert = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(key_id, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, folder: Path, name: str, hosts: Sequence[str]) -> None:
        """Write certificate and key of a holder; one with hosts may serve, everyone may be a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]  # a worker is the client of the next stage
        builder = self._builder(_named(name), key.public_key())
        if hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        cert = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_atomic(folder / tls.cert_name(name), _pem(cert))
        write_atomic(folder / tls.key_name(name), secret, mode=0o600)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            subject_name=subject,
            issuer_name=self._name,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=self.begin,
            not_valid_after=self.until,
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _require_host(host: str) -> None:
    if isinstance(_general(host), x509.DNSName) and not _NAME.fullmatch(host):
        raise UsageError(
            f"--host {host!r} is neither a name nor an address",
            remedy="give what clients connect to, without a port: --host gpu1.example.org --host 10.0.0.5",
        )


def _taken(folder: Path) -> UsageError:
    return UsageError(
        f"{folder} is there already",
        cause="certificates that somebody may be using are not overwritten",
        remedy="name another folder, or remove that one first",
    )
