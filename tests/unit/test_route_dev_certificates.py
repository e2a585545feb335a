"""Certificates for trials: what is made, who can read it, and that nothing of anybody's is overwritten."""

import ipaddress
import json
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from dgr_build.cli.main import run as cli
from dgr_build.errors import UsageError
from dgr_build.route import dev_certificates
from dgr_build.route.dev_certificates import make_dev_certificates


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def names_of(cert):
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def test_workers_and_client_are_signed_by_an_authority_whose_key_is_gone(tmp_path):
    made = make_dev_certificates(tmp_path / "certs", ["gpu1.example.org", "10.0.0.5", "fd00::5"])
    authority = certificate(made.folder / "ca.pem")
    holders = ["client", "worker", "worker-gpu1.example.org", "worker-10.0.0.5", "worker-fd00__5"]
    public = {authority.public_key().public_numbers()}
    for holder in holders:
        cert = certificate(made.folder / f"{holder}.pem")
        cert.verify_directly_issued_by(authority)
        key = load_pem_private_key((made.folder / f"{holder}-key.pem").read_bytes(), password=None)
        assert key.public_key() == cert.public_key()
        assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        public.add(key.public_key().public_numbers())
    assert len(public) == len(holders) + 1
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert {path.name for path in made.folder.iterdir()} == {
        "ca.pem", "README.txt", ".gitignore", *(f"{holder}.pem" for holder in holders),
        *(f"{holder}-key.pem" for holder in holders),
    }  # fmt: skip
    assert "PRIVATE KEY" not in (made.folder / "ca.pem").read_text()


def test_a_worker_is_named_by_its_host_alone_and_a_client_by_none(tmp_path):
    made = make_dev_certificates(tmp_path / "certs", ["gpu1.example.org", "10.0.0.5"])
    expected = {
        "worker.pem": ["localhost", "127.0.0.1", "::1"],
        "worker-gpu1.example.org.pem": ["gpu1.example.org"],
        "worker-10.0.0.5.pem": ["10.0.0.5"],
        "client.pem": [],
    }
    for file, names in expected.items():
        cert = certificate(made.folder / file)
        assert names_of(cert) == names
        usage = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert ExtendedKeyUsageOID.CLIENT_AUTH in usage  # a worker is the client of the next stage
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == bool(names)
    addresses = certificate(made.folder / "worker-10.0.0.5.pem").extensions
    names = addresses.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.5")]


@pytest.mark.parametrize("days", [1, 30])
def test_they_are_valid_for_the_days_that_are_stated(tmp_path, days):
    made = make_dev_certificates(tmp_path / "certs", days=days)
    for path in made.folder.glob("*.pem"):
        if "-key" not in path.name:
            cert = certificate(path)
            left = cert.not_valid_after_utc - datetime.now(UTC)
            assert timedelta(days=days, minutes=-5) < left <= timedelta(days=days)
            assert cert.not_valid_before_utc < datetime.now(UTC)
    assert f"{made.until:%Y-%m-%d %H:%M}" in (made.folder / "README.txt").read_text()


def test_keys_are_their_makers_alone(tmp_path):
    made = make_dev_certificates(tmp_path / "certs", ["10.0.0.5"])
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    for path in made.folder.glob("*-key.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (made.folder / ".gitignore").read_text() == "*\n"  # or a clone's next commit would hold them


def test_what_is_there_is_not_overwritten(tmp_path):
    made = make_dev_certificates(tmp_path / "certs")
    before = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name in ("certs", "dangling", "empty", "file"):
        with pytest.raises(UsageError, match=name):
            make_dev_certificates(tmp_path / name)
    assert {path.name: path.read_bytes() for path in made.folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certs", "dangling", "empty", "file"]


def test_one_that_is_made_meanwhile_is_not_overwritten_either(tmp_path, monkeypatch):
    def write(path, data, **options):
        (tmp_path / "certs").mkdir(exist_ok=True)
        (tmp_path / "certs" / "theirs").touch()
        path.write_bytes(data)

    monkeypatch.setattr(dev_certificates, "write_atomic", write)
    with pytest.raises(UsageError, match="certs"):
        make_dev_certificates(tmp_path / "certs")
    assert [path.name for path in tmp_path.rglob("*")] == ["certs", "theirs"]


def test_nothing_is_left_where_making_them_fails(tmp_path, monkeypatch):
    def full(path, data, **options):
        if path.name == "client-key.pem":
            raise OSError(28, "No space left on device")
        path.write_bytes(data)

    monkeypatch.setattr(dev_certificates, "write_atomic", full)
    with pytest.raises(OSError, match="No space"):
        make_dev_certificates(tmp_path / "certs")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "host", ["", "a b", "gpu1:7001", "10.0.0", "10.0.0.5/8", "*.example.org", "[fd00::5]", "../x", "-x"]
)
def test_a_host_that_is_none_is_refused_before_anything_is_made(tmp_path, host):
    with pytest.raises(UsageError, match="--host"):
        make_dev_certificates(tmp_path / "certs", [host])
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_was_made_and_that_it_is_for_trials(tmp_path, capsys):
    assert cli(["certs", "dev", str(tmp_path / "certs"), "--host", "10.0.0.5", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["workers"] == {"": "worker.pem", "10.0.0.5": "worker-10.0.0.5.pem"}
    assert cli(["certs", "dev", str(tmp_path / "certs")]) == 2
    assert cli(["certs", "dev", str(tmp_path / "more"), "--days", "3"]) == 0
    shown = capsys.readouterr()
    assert "trials only" in shown.err
    assert "3 days" in shown.err
    assert f"--tls {tmp_path / 'more'}" in shown.err
