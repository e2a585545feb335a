"""Routes over TLS: the certificates of a client, of a recipe, and of the workers that are started for it."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dgr_build.documents.recipe import load_recipe
from dgr_build.documents.tls import Tls
from dgr_build.errors import RouteError, UsageError
from dgr_build.route import tls as route_tls
from dgr_build.route.client import RouteClient
from dgr_build.route.dev_certificates import make_dev_certificates
from dgr_build.route.tls import ClientTls

_RECIPE = """
name = "made"
purpose = "a test"
[model.tiny]
arch = "llama"
[[stages]]
name = "whole"
first = 0
last = 1
"""
_TLS = """
[tls]
ca = "certs/ca.pem"
cert = "certs/client.pem"
key = "certs/client-key.pem"
worker_cert = "certs/worker.pem"
worker_key = "/etc/worker-key.pem"
"""


@pytest.fixture
def certs(tmp_path):
    return make_dev_certificates(tmp_path / "certs").folder


@pytest.fixture
def server_side(certs):
    """What a worker shows, and that it asks its clients for a certificate."""
    pair = ((certs / "worker-key.pem").read_bytes(), (certs / "worker.pem").read_bytes())
    return grpc.ssl_server_credentials([pair], (certs / "ca.pem").read_bytes(), require_client_auth=True)


def client_of(folder):
    return ClientTls.of(Tls.of_folder(folder))


def test_a_client_speaks_to_workers_over_mutual_tls(route_fake, server_side, certs):
    with route_fake.stages(credentials=server_side) as route:
        with RouteClient(route_fake.addresses(route), tls=client_of(certs)) as client:
            ids = [step.token for step in client.generate([5, 6, 7], 4)]
        assert ids == route_fake.whole([5, 6, 7], 4)[0]


def test_a_client_that_shows_nothing_or_trusts_others_does_not_get_through(
    route_fake, server_side, certs, tmp_path
):
    others = make_dev_certificates(tmp_path / "others").folder
    mixed = ClientTls(ca=certs / "ca.pem", cert=others / "client.pem", key=others / "client-key.pem")
    with route_fake.stages(credentials=server_side) as route:
        for tls in (None, ClientTls(ca=certs / "ca.pem"), client_of(others), mixed):
            with pytest.raises(RouteError, match="does not answer"):
                RouteClient(route_fake.addresses(route), tls=tls)


def test_a_certificate_is_not_needed_where_workers_ask_for_none(route_fake, certs):
    pair = ((certs / "worker-key.pem").read_bytes(), (certs / "worker.pem").read_bytes())
    with (
        route_fake.stages(credentials=grpc.ssl_server_credentials([pair])) as route,
        RouteClient(route_fake.addresses(route), tls=ClientTls(ca=certs / "ca.pem")) as client,
    ):
        assert client.tokenize("a")


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
@pytest.mark.parametrize("spoil", ["absent", "no PEM"])
def test_a_file_that_is_not_what_it_should_be_is_named(certs, name, spoil):
    path = certs / "spoilt.pem"
    if spoil == "no PEM":
        path.write_text("hello\n")
    tls = Tls.of_folder(certs).model_copy(update={name: path})
    with pytest.raises(UsageError, match=r"spoilt\.pem") as caught:
        ClientTls.of(tls).credentials()
    assert caught.value.remedy


def test_a_key_of_another_certificate_is_refused(certs):
    tls = Tls.of_folder(certs).model_copy(update={"key": certs / "worker-key.pem"})
    with pytest.raises(UsageError, match=r"worker-key\.pem.*client\.pem"):
        ClientTls.of(tls).credentials()


def test_a_key_with_a_passphrase_is_refused(certs):
    secret = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (certs / "client-key.pem").write_bytes(secret)
    with pytest.raises(UsageError, match=r"client-key\.pem") as caught:
        client_of(certs).credentials()
    assert "passphrase" in caught.value.remedy


@pytest.mark.parametrize(("days", "what"), [(31, "expired"), (-1, "not valid yet")])
def test_what_is_out_of_its_time_is_refused(certs, monkeypatch, days, what):
    class Clock(datetime):
        @classmethod
        def now(cls, _tz=None):
            return datetime.now(UTC) + timedelta(days=days)

    monkeypatch.setattr(route_tls, "datetime", Clock)
    with pytest.raises(UsageError, match=what):
        client_of(certs).credentials()


def test_a_recipes_certificates_are_meant_from_its_folder_and_change_no_digest(tmp_path):
    plain, private = tmp_path / "plain.toml", tmp_path / "private.toml"
    plain.write_text(_RECIPE)
    private.write_text(_RECIPE + _TLS)
    recipe = load_recipe(private)
    assert recipe.tls == Tls(
        ca=tmp_path / "certs/ca.pem",
        cert=tmp_path / "certs/client.pem",
        key=tmp_path / "certs/client-key.pem",
        worker_cert=tmp_path / "certs/worker.pem",
        worker_key="/etc/worker-key.pem",
    )
    assert load_recipe(plain).tls is None
    assert recipe.digest() == load_recipe(plain).digest()


def test_a_recipe_with_half_of_the_certificates_is_refused(tmp_path):
    file = tmp_path / "half.toml"
    file.write_text(_RECIPE + '[tls]\nca = "ca.pem"\n')
    with pytest.raises(UsageError) as caught:
        load_recipe(file)
    assert "tls.worker_key" in caught.value.cause
