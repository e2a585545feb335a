"""Real worker processes, and what one of them answers or refuses."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import grpc

from dgr_build.process import Child
from dgr_build.route import wire

pb, rpc = wire.pb2, wire.pb2_grpc
_START_S, ANSWER_S = 60, 60
_SETTINGS = {
    "listen": "127.0.0.1:0", "n_ctx": 512, "slots": 2, "n_ubatch": 64, "threads": 1, "threads_batch": 1,
    "flash_attn": "off", "type_k": "f16", "type_v": "f16",
}  # fmt: skip
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Refused(Exception):  # noqa: N818 - an answer, as data
    """A call that a worker refused: the status, and the detail that a client reads in place of prose."""

    def __init__(self, error):
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code()
        self.text = error.details() or ""
        self.rejected = self.miss = self.failure = None
        for key, value in error.trailing_metadata() or ():
            if key != "grpc-status-details-bin":
                continue
            for any_detail in pb.RpcStatus.FromString(value).details:
                for name, kind in (
                    ("rejected", pb.Rejected),
                    ("miss", pb.CacheMiss),
                    ("failure", pb.Failure),
                ):
                    message = kind()
                    if any_detail.Unpack(message):
                        setattr(self, name, message)

    @property
    def field(self):
        return self.rejected.field if self.rejected else ""


def ask(call, request):
    try:
        return call(request, timeout=ANSWER_S)
    except grpc.RpcError as error:
        raise Refused(error) from None


class Worker:
    """One real worker process over one range of a model."""

    def __init__(self, lane, artifact, first, last, folder, *, model=None, **settings):
        self.log, self._port_file = folder / "worker.log", folder / "port"
        argv = [lane.worker, "--model", model or artifact.path, "--artifact-digest", artifact.digest]
        argv += ["--first", first, "--last", last, "--port-file", self._port_file]
        for name, value in (_SETTINGS | settings).items():
            flag = "--" + name.replace("_", "-")
            argv += [flag] if value is True else [flag, value]
        with self.log.open("wb") as log:
            self.child = Child(argv, stdout=log, stderr=log)

    def ready(self):
        deadline = time.monotonic() + _START_S
        while not self._port_file.exists():
            assert self.child.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        self.address = f"127.0.0.1:{int(self._port_file.read_text())}"
        self.channel = grpc.insecure_channel(self.address, options=_OPTIONS)
        self.stub = rpc.ShardStub(self.channel)
        self.about = ask(self.stub.Describe, pb.DescribeRequest())
        return self

    @property
    def status(self):
        return ask(self.stub.Status, pb.StatusRequest())

    @property
    def alive(self):
        return self.child.poll() is None and self.status.instance == self.about.instance

    @property
    def peer(self):
        about = self.about
        return pb.Peer(
            instance=about.instance,
            range=about.range,
            patched_tree=about.build.patched_tree,
            artifact_digest=about.artifact.digest,
            boundary_digest=about.boundary.digest,
            n_ubatch=about.numerics.n_ubatch,
            numerics_digest=about.numerics.digest,
            lane_digest=about.build.lane_digest,
        )

    def io(self):
        text = Path(f"/proc/{self.child.pid}/io").read_text()
        return {name: int(value) for name, value in (line.split(": ") for line in text.splitlines())}

    def stop(self):
        if hasattr(self, "channel"):
            self.channel.close()
        self.child.signal(signal.SIGTERM)  # and once more by stop(), for sessions that a test left open
        return self.child.stop()
