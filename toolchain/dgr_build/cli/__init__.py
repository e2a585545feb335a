"""The command line: each module parses one command group, calls one function and prints."""
