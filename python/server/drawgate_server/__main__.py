"""Runs the program with the arguments of `python -m drawgate_server`."""

import os
import subprocess
import sys

from . import path

command = [str(path()), *sys.argv[1:]]
if sys.platform == "win32":  # there a program cannot replace this one
    sys.exit(subprocess.call(command))
os.execv(command[0], command)
