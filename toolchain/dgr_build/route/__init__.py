"""Routes: worker processes, the client that drives them, and the comparison with the whole model."""

import os

# Programs are started beside live channels; gRPC's handlers at fork would abort the child before it can exec.
# Read once, when gRPC is imported, hence here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
