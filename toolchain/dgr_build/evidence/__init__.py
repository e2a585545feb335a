"""Evidence: records of what was really built and run, tied together by digests."""
