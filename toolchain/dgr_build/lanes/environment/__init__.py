"""Environments: where a lane's compilers come from, made once from a lock and entered to build and to run."""
