"""What a refusal means, read from its typed details."""

import grpc
import pytest

from dgr_build.route import failures, wire

_TRAILER = "grpc-status-details-bin"


class Ended(grpc.RpcError):
    """A status as gRPC's client gives it."""

    def __init__(self, trailer):
        super().__init__()
        self._trailer = trailer

    def code(self):
        return grpc.StatusCode.FAILED_PRECONDITION

    def details(self):
        return "no, because"

    def trailing_metadata(self):
        return self._trailer


@pytest.fixture
def read(isolated):
    def read_with(*details):
        status = wire.pb2.RpcStatus(code=9)
        for detail in details:
            status.details.add().Pack(detail)
        return failures.read(Ended([("other", "x"), (_TRAILER, status.SerializeToString())]))

    return read_with


def test_a_rejection_names_its_field(read):
    refusal = read(wire.pb2.Rejected(field="frame.token_ids", reason="r", legal="l"))
    assert (refusal.field, refusal.is_miss, refusal.layers) == ("frame.token_ids", False, None)
    assert "frame.token_ids" in failures.route_error(refusal, "stage 0").message


def test_a_cache_miss_is_one(read):
    assert read(wire.pb2.CacheMiss(held_epoch=1)).is_miss


def test_the_author_of_a_failure_takes_the_place_of_the_stage_that_passed_it_on(read):
    refusal = read(wire.pb2.Failure(range=wire.pb2.LayerRange(first=0, last=4), cause="c"))
    assert refusal.layers == (0, 4)
    message = failures.route_error(refusal, "stage 0 [9, 12) at here").message
    assert "[0, 4)" in message
    assert "[9, 12)" not in message


def test_details_of_other_kinds_are_passed_over(read):
    refusal = read(wire.pb2.Ready(), wire.pb2.Rejected(field="key"))
    assert refusal.field == "key"


@pytest.mark.parametrize("trailer", [None, (), [(_TRAILER, b"\xff\xff\xff")]])
def test_code_and_text_are_told_where_details_are_missing_or_broken(trailer, isolated):
    refusal = failures.read(Ended(trailer))
    assert (refusal.code, refusal.text) == ("FAILED_PRECONDITION", "no, because")
    error = failures.route_error(refusal, "stage 1")
    assert error.exit_code == 10
    assert "stage 1" in error.message
    assert error.cause == "no, because"
