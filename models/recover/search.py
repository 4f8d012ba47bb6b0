"""What the enumerations share: the search through all states of a world, and the comparison with
the expected verdict.
"""

import sys
import time
from collections import deque

QUICK = "--quick" in sys.argv
wrong = 0


def check(name, want, world, budget, quick=False, most=3_000_000):
    """Searches a world in which each event happens at most as often as its budget says, and prints a line.

    want is H (it holds), or V (it is violated), with what is violated.
    """
    global wrong
    if QUICK and not quick:
        return
    began, text = time.process_time(), ", ".join(f"{event} {n}" for event, n in budget.items())
    states, what, how, cut = explore(world, budget, most)
    got = "? cut off" if cut else f"V {what}" if what else "H"
    same = got == want
    wrong += not same
    print(
        f"{'ok' if same else 'MISMATCH'} expected={want} got={got} {name}: {world}, {text}: {states} states, "
        f"{time.process_time() - began:.0f} s",
        flush=True,
    )
    if what:
        print(f"   {how}", flush=True)


def explore(world, budget, most):
    """The number of states, what is violated first, the steps that lead there, and whether the search was cut off."""
    start = world.start(tuple(budget.get(event, 0) for event in world.EVENTS))
    todo, came = deque([start]), {start: None}
    while todo:
        if len(came) > most:
            return len(came), None, None, True
        state = todo.popleft()
        for after, step, fault in world.moves(state):
            if after in came and not fault:
                continue
            came.setdefault(after, (state, step))
            fault = fault or world.broken(after)
            if fault:
                return len(came), fault, "; ".join(steps(came, state) + [step]), False
            todo.append(after)
    return len(came), None, None, False


def steps(came, state):
    words = []
    while came[state]:
        state, word = came[state]
        words.append(word)
    return words[::-1]


class World:
    """A world: its events, its first state, its steps, and what must not be."""

    EVENTS = ()

    def __init__(self, without=(), procs=2, **options):
        self.without = frozenset([without] if isinstance(without, str) else without)
        self.procs = procs
        self.__dict__.update({**self.OPTIONS, **options})

    OPTIONS = {}

    def __str__(self):
        return f"{self.procs} processes"

    def left(self, s, event):
        return s.left[self.EVENTS.index(event)]

    def spend(self, s, event):
        i = self.EVENTS.index(event)
        return s._replace(left=s.left[:i] + (s.left[i] - 1,) + s.left[i + 1 :])


# Epochs. A record's list has (mark, start): the mark is (generation, the server's clock when it was
# drawn), the start is the instant of the last write before.
OTHERS = (0, 0)  # the mark of an epoch that a program of the version before began


def last_mark(epochs):
    return epochs[-1][0] if epochs else None


def noted(epochs, gen, n, clock=None):
    """The list at the next write under a generation.

    n is the instant of the last write, None if there is no record; clock is the server's at this write.
    Without it nothing is written: then the new mark is pending, and known by the mark before it.
    """
    if n is None:
        return (((gen, clock), 0),)
    if not epochs:  # the program of the version before made the record
        epochs = ((OTHERS, 0),)
    if epochs[-1][0][0] != gen:
        epochs += (((gen, epochs[-1][0] if clock is None else clock), n),)
    return epochs


def present(stamps, epochs, without=()):
    """Whether what has these stamps is in a record with this list."""
    marks = [mark for mark, _ in epochs]
    for mark, n in stamps:
        i = marks.index(mark) if mark in marks else 0 if marks[:1] == [OTHERS] and "others" not in without else None
        if i is not None and (i + 1 == len(epochs) or n <= epochs[i + 1][1] or "instant" in without):
            return True
    return False
