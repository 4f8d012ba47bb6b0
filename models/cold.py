#!/usr/bin/env python3
"""cold.py - processes that start while the store is unavailable: what a start may admit, and how far over the limit that leads.

A process that starts in an outage does not know what was used. `cold` lets it admit a part of its share at once: its own record says that
the rest of the share was used when it started. `full` is the whole share, where one process at a time owns the store.

Every order of these steps is explored, in units: the store admits (up to the limit of what it knows), a process admits locally (up to what
its record leaves of its share), the store is lost, the store returns (what living processes admitted is delivered), a process ends and
another starts in its place, a process starts in addition. Records begin empty, and one window is looked at: earlier use only takes
away from a share. For a bucket the level of one ideal bucket is followed over several periods, while all are cut off.

Checked: the most that is over the limit, against the formula. Exit status: 1 if one differs. With --quick only the small limits.
"""
import sys
import time
from math import floor

wrong = 0
QUICK = "--quick" in sys.argv
WINDOW = 4  # ticks, where the time of a start matters

PARTS = {  # of the share s with n instances, at tick t of a window
    "nothing": lambda s, n, t: 0,
    "one unit": lambda s, n, t: min(1, s),
    "share/instances": lambda s, n, t: s // n,
    "share/max(2, instances), at least 1": lambda s, n, t: min(s, max(1, s // max(2, n))),
    "share/2": lambda s, n, t: s // 2,
    "share x rest of the window": lambda s, n, t: s * (WINDOW - t) // WINDOW,
    "full": lambda s, n, t: s,
}


def window(limit, n, starts, part, losses=1, timed=False, ramp=False, extra=0, later=None, again=False):
    """The most units in one window: rolling or calendar. starts: of processes in place of ended ones; extra: processes in addition to n,
    which started cold, in this window, or earlier, then later is what each of them may admit. ramp: a start admits at the rate of its share, and
    nothing at once. again: the part is granted once more after a return."""
    s = limit // n
    first = (0, 0, s, -1)  # used as far as it knows, not delivered, what its record leaves it, the tick of its start
    late = tuple((0, 0, later, -1) for _ in range(extra)) if later is not None else ()
    begin = (0, later is None, losses if later is None else 0, starts, extra if later is None else 0, 0, 0, tuple(sorted((first,) * n + late)))
    todo, seen, most = [begin], {begin}, 0
    while todo:
        tick, up, left, k, x, known, total, procs = todo.pop()
        most = max(most, total)
        out = []
        for i, (used, owed, own, born) in enumerate(procs):
            if i and procs[i] == procs[i - 1]:
                continue
            rest = procs[:i] + procs[i + 1:]
            mine = s * (tick - born) // WINDOW if ramp and born >= 0 else own
            if up and known < limit:
                out.append((tick, up, left, k, x, known + 1, total + 1, rest + ((used + 1, owed, own, born),)))
            if up and born >= 0 and used == 0:  # learns what was used from an answer
                out.append((tick, up, left, k, x, known, total, rest + ((used, owed, s - min(s, known), -1),)))
            if not up and used < mine:
                out.append((tick, up, left, k, x, known, total + 1, rest + ((used + 1, owed + 1, own, born),)))
            if not up and k:
                out.append((tick, up, left, k - 1, x, known, total, rest + ((0, 0, part(s, n, tick), tick),)))
        if not up and x:
            out.append((tick, up, left, k, x - 1, known, total, procs + ((0, 0, part(s, n, tick), tick),)))
        if up and left:
            out.append((tick, False, left - 1, k, x, known, total, procs))
        if not up and left:
            back = tuple((u, 0, o + (part(s, n, tick) if again and b >= 0 else 0), b) for u, _, o, b in procs)
            out.append((tick, True, left, k, x, known + sum(p[1] for p in procs), total, back))
        if (timed or ramp) and tick + 1 < WINDOW:
            out.append((tick + 1, up, left, k, x, known, total, procs))
        for t in out:
            t = t[:-1] + (tuple(sorted(t[-1])),)
            if t not in seen:
                seen.add(t)
                todo.append(t)
    return most, len(seen)


def bucket(limit, n, starts, part, periods=3):
    """The highest level that one ideal bucket would have, which counts what all processes admit: they are cut off for some periods. A
    period is in limit/n ticks, in each of which a process's bucket drains by one unit."""
    s = limit // n
    best, count = 0, 0
    for taken in range(limit + 1):  # what the store had given, to the first process, whose own bucket continues at most full
        begin = (0, taken, starts, tuple(sorted((min(s, taken),) + (0,) * (n - 1))))
        todo, seen = [begin], {begin}
        while todo:
            tick, level, k, own = todo.pop()
            best = max(best, level)
            out = []
            for i in range(n):
                rest = own[:i] + own[i + 1:]
                if own[i] < s:
                    out.append((tick, level + 1, k, rest + (own[i] + 1,)))
                if k:
                    out.append((tick, level, k - 1, rest + (s - part(s, n, 0),)))
            if tick < periods * s:
                out.append((tick + 1, max(0, level - n), k, tuple(max(0, o - 1) for o in own)))
            for t in out:
                t = t[:-1] + (tuple(sorted(t[-1])),)
                if t not in seen:
                    seen.add(t)
                    todo.append(t)
        count += len(seen)
    return best, count


def line(name, got, want, states, began):
    global wrong
    wrong += got != want
    print(f"{'ok' if got == want else 'MISMATCH'} {name}: over by {got}, formula {want}, {states} states, {time.time() - began:.0f} s", flush=True)
    return got


def replaced():
    print("A start takes the place of a process that ended. One loss; k starts.")
    for limit, n in ((4, 1), (6, 2)) if QUICK else ((4, 1), (6, 2), (9, 3), (12, 3)):
        s = limit // n
        for name, part in PARTS.items():
            timed = "rest" in name
            for k in (0, 1, 2, 3) if n < 3 else (0, 1, 3):
                began = time.time()
                most, states = window(limit, n, k, part, timed=timed)
                line(f"limit {limit}, {n} instances, {k} starts, {name}", most - limit, (n - 1) * s + k * part(s, n, 0), states, began)
        for k in (1, 3):
            began = time.time()
            most, states = window(limit, n, k, PARTS["nothing"], ramp=True)
            line(f"limit {limit}, {n} instances, {k} starts, at the rate of the share", most - limit, (n - 1) * s + ramped(s, n, k), states, began)


def later_windows():
    print("The same, in a later window of the outage: nothing comes from the store.")
    for limit, n in ((4, 1), (6, 2)) if QUICK else ((4, 1), (6, 2), (9, 3)):
        s = limit // n
        for name in ("nothing", "share/max(2, instances), at least 1", "full"):
            part = PARTS[name]
            for k in (0, 1, 2):
                began = time.time()
                most, states = window(limit, n, k, part, later=0)
                line(f"limit {limit}, {n} instances, {k} starts, later window, {name}", most - limit, n * s + k * part(s, n, 0) - limit, states, began)


def ramped(s, n, k):
    """Starts that admit at the share's rate: each place has at most one such share, whatever the number of starts."""
    return min(k, n) * floor(s * (WINDOW - 1) / WINDOW)


def returns():
    print("The store returns, and is lost again. What processes had not delivered when they ended is forgotten: at most a share for each end.")
    for limit, n, losses in ((4, 1, 2), (4, 1, 3), (4, 2, 2), (6, 2, 2), (4, 2, 3)):
        s = limit // n
        for name in ("nothing", "one unit", "share/max(2, instances), at least 1", "full"):
            part = PARTS[name]
            for k in (0, 1, 2, 3):
                began = time.time()
                most, states = window(limit, n, k, part, losses=losses)
                forgot = min(k, n * (losses - 1))
                want = (n - 1) * s + forgot * s + (k - forgot) * part(s, n, 0)
                line(f"limit {limit}, {n} instances, {k} starts, {losses} losses, {name}", most - limit, want, states, began)
    for again in (False, True):
        began = time.time()
        most, states = window(4, 2, 1, PARTS["one unit"], losses=5, again=again)
        name = "limit 4, 2 instances, 1 starts, 5 losses, one unit" + (", and another one after each return (left out: one part per start)" if again else "")
        line(name, most - 4, 2 + (5 if again else 2), states, began)


def added():
    print("Counted instances: cold processes in addition to the n that were counted; at_least a: share = limit/a.")
    for limit, n, a in ((6, 2, 2), (6, 1, 2), (8, 2, 2)):
        s, c = limit // a, (limit // a) // max(2, a)
        for x in (1, 2, 3):
            name, part = f"limit {limit}, {n} mature, at_least {a}, {x} cold", lambda *_, c=c: c
            began = time.time()
            most, states = window(limit, n, 0, part, extra=x)
            line(f"{name}, the window of the loss", most - limit, (n - 1) * (limit // n) + x * c, states, began)
            for word, later in (("they stay at the part", c), ("they have the share (left out: not mature, no share)", s)):
                most, states = window(limit, n, 0, part, extra=x, later=later)
                line(f"{name}, later windows, {word}", most - limit, n * (limit // n) - limit + x * later, states, began)
    began = time.time()
    most, states = window(6, 1, 0, PARTS["full"], extra=1, later=6)
    line("limit 6, full without the lock: two processes, in each later window", most - 6, 6, states, began)
    most, states = window(6, 1, 0, PARTS["full"], later=6)
    line("limit 6, full with the lock: in each later window", most - 6, 0, states, began)


def leveled():
    print("Buckets: the starts of the whole outage add up, not those of one window.")
    for limit, n in ((4, 1), (6, 2)) if QUICK else ((4, 1), (6, 2), (9, 3)):
        s = limit // n
        for name in ("nothing", "one unit", "share/max(2, instances), at least 1", "share/2", "full"):
            part = PARTS[name]
            for k in (0, 1, 2, 3):
                began = time.time()
                most, states = bucket(limit, n, k, part, 2 if n == 3 else 3)
                line(f"bucket {limit}, {n} instances, {k} starts, {name}", most - limit, (n - 1) * s + k * part(s, n, 0), states, began)


def table():
    print("\nOver the limit by cold starts alone, in percent of the limit (n instances; k starts in one window; limit 3600):")
    print(f"{'part':42}" + "".join(f"{f'n={n} k={k}':>11}" for n in (1, 3, 10) for k in (1, n, 10 * n)))
    for name, part in PARTS.items():
        cells = [100 * k * part(3600 // n, n, 0) / 3600 for n in (1, 3, 10) for k in (1, n, 10 * n)]
        print(f"{name:42}" + "".join(f"{c:11.1f}" for c in cells))
    print(f"{'at the rate of the share':42}" + "".join(f"{100 * min(k, n) / n:11.1f}" for n in (1, 3, 10) for k in (1, n, 10 * n)))


if __name__ == "__main__":
    replaced()
    later_windows()
    returns()
    added()
    leveled()
    table()
    print("ALL AS EXPECTED" if not wrong else f"{wrong} MISMATCHES")
    sys.exit(wrong != 0)
