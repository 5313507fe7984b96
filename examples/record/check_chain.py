"""Check the chain of a log without fedroster: ``python check_chain.py FOLDER`` prints the digest of its last line."""

import hashlib
import json
import sys
from pathlib import Path


def lines_of(folder):
    """The lines of a log's files, one after the other."""
    for file in sorted(Path(folder).glob("rounds-*.jsonl")):
        with file.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):  # else a killed process has left it
                    yield line[:-1]


def head_of(folder):
    """Digest of the last line, if each line holds the digest of the one before it."""
    number, head = 0, hashlib.sha256(b"").hexdigest()
    for line in lines_of(folder):
        said = json.loads(line)
        if said["line"] != number + 1 or said["before"] != head:
            raise SystemExit(f"line {said['line']} does not follow line {number}: one of them was changed")
        number, head = said["line"], hashlib.sha256(line).hexdigest()
    return head


if __name__ == "__main__":
    print(head_of(sys.argv[1]))
