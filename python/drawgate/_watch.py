"""Runs a program until standard input ends, or has a byte.

Whoever holds the other end ends the program by that, or by ending itself, however that happens. This is a
program of its own, which imports nothing but the standard library.
"""

import os
import subprocess
import sys
import threading


def main() -> int:
    """Runs the program that the arguments name, and returns its exit code."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stderr=sys.stderr)

    def end() -> None:
        os.read(0, 1)
        process.kill()

    threading.Thread(target=end, daemon=True).start()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
