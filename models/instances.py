#!/usr/bin/env python3
"""instances.py - instances count themselves, and divide a limit among them while the store is unavailable.

The rule (docs/fallback.md): each instance holds a slot in the store and renews it. With each renewal it learns how many
slots are open. While the store is unavailable it admits the share 1/D of a limit, where D is the largest number that it
learned in its last minutes of contact. It admits a share only if it is mature: its slot had been open for two renewals
in unbroken contact. An instance that was cut off tries again until the store answers; if its slot is still open by then,
it renews it and stays mature, otherwise it begins anew.

Part 1 enumerates schedules in seconds: instances start, and are cut off for good, all at once or one by one.
Part 2 explores every history of a store that becomes unavailable and comes back as often as it likes, of
instances that start at any time, are paused, and notice the loss early (by a take) or late (by a renewal).
Part 3 is part 2 for processes that run only while they are called, such as functions of AWS Lambda: they renew in a
call, once a minute at most, and are paused between calls for as long as it pleases.

Checked: the sum of 1/D over all instances that may admit a share at one instant. 1 means one limit per window.
Exit status: 1 if a run does not give the expected verdict. --quick leaves out the runs of more than some seconds.
"""
from fractions import Fraction as F
from itertools import product, combinations_with_replacement as cwr
import sys, time

quick = "--quick" in sys.argv
wrong = 0


def line(ok, text):
    global wrong
    wrong += not ok
    print(f"{'ok' if ok else 'MISMATCH'} {text}", flush=True)


# Part 1: cut off for good. Times in seconds: a slot is renewed each R; D looks back KEEP.
R, KEEP = 20, 300


def worth(starts, cuts, hold, mature, least):
    """The sum of 1/D of instances that start at starts and are cut off at cuts."""
    k = len(starts)
    renewals = [list(range(s, c, R)) for s, c in zip(starts, cuts)]

    def is_open(j, t, i):
        if j == i:
            return True
        last = [r for r in renewals[j] if r < t or (r == t and j < i)]
        return bool(last) and t < last[-1] + hold

    total = F(0)
    for i in range(k):
        seen = [sum(is_open(j, t, i) for j in range(k)) for t in renewals[i] if t > cuts[i] - KEEP]
        if cuts[i] - starts[i] > mature:
            total += F(1, max([least] + seen))
    return total


def worst(k, hold, mature, least, once, grid, top):
    best = (F(0), None)
    ends = range(grid, top + grid, grid)
    for starts in cwr(range(0, top, grid), k):
        for cuts in ([c] * k for c in ends) if once else product(ends, repeat=k):
            if all(c > s for s, c in zip(starts, cuts)):
                best = max(best, (worth(starts, cuts, hold, mature, least), (starts, tuple(cuts))), key=lambda w: w[0])
    return best


def part1():
    forms = [("hold 60 s, no maturity", 60, 0, 1), ("hold 60 s, mature 40 s", 60, 40, 1), ("hold 600 s, mature 40 s", 600, 40, 1), ("the same, at_least 3", 600, 40, 3)]
    for name, hold, mature, least in forms:
        for k in (2, 3) if quick else (2, 3, 4):
            most = F(1) if mature else sum(F(1, i) for i in range(1, k + 1))
            w, how = worst(k, hold, mature, least, True, 10 if k < 4 else 20, 160)
            line(w == min(most, F(k, least)), f"{name}, {k} instances, all cut off at once: {float(w):.3f} {how}")
            if k == 4 or quick and k > 2:
                continue
            w, how = worst(k, hold, mature, least, False, 20 if k == 2 else 40, 240 if k == 2 else 280)
            line(w <= F(k, least), f"{name}, {k} instances, cut off one by one: {float(w):.3f} (at most {float(F(k, least)):.3f}) {how}")


# Part 2: the store comes and goes. Time in steps of 10 s; a renewal each 2 steps. HOLD and KEPT are scaled down: three minutes and two.
EVERY, MATURE, KEPT, HOLD = 2, 2, 12, 18
STALE = EVERY * MATURE  # steps without any try after which an instance no longer knows what it missed

# An instance that runs: slot = steps since the store renewed its slot (HOLD: it has ended); tried = steps since it tried last;
# streak = renewals in unbroken contact, mature, lost, stale; seen = ((steps of contact ago, number), ...).
NEW = None

ALWAYS = -1  # pauses: in each step


def explore(k, depth, rule, links=False, pauses=0, wipes=0, short=False, prompt=False, calls=False):
    """Every history of k instances in at most depth steps. Returns the worst sum, how it came about, the number of states, and after
    how many steps there were no new ones. A sum above 1 ends the search.

    links: each instance's way to the store fails by itself, else the store does for all. short: the store may be unavailable for one
    step only, which not everybody notices. prompt: instances that are cut off try again in each step, else in each second one at
    least. calls: instances renew in calls, which come at any time or not at all; unless short, the store is then there, or not, for at least
    as long as an instance may be silent. rule says how the rule is changed.
    """
    if calls:
        pauses = ALWAYS
    start = ((NEW,) * k, True, 9, pauses, wipes)
    todo, done, best = [(start, ())], {start}, (F(0), ())
    for step in range(depth):
        later = []
        for state, how in todo:
            for nxt, word, total in moves(state, rule, links, short, prompt, calls):
                if total > best[0]:
                    best = (total, how + (word,))
                    if total > 1:
                        return best[0], best[1], len(done), step + 1
                if nxt not in done:
                    done.add(nxt)
                    later.append((nxt, how + (word,)))
        todo = later
        if not todo:
            return best[0], best[1], len(done), step
    return best[0], best[1], len(done), depth


def moves(state, rule, links, short, prompt, calls):
    """What may happen in one step."""
    procs, was_up, since, pauses, wipes = state
    k = len(procs)
    ups = product((True, False), repeat=k) if links else ((u,) * k for u in (True, False))
    for up in ups:
        if not links and up[0] != was_up and since < (STALE if calls else EVERY if up[0] else 0) and not short:
            continue  # everybody who runs notices that the store is unavailable; in calls also that it is back
        # In each step an instance does one of: nothing but what is due; w: wait one more step before it tries again (a return is
        # noticed within a renewal's time, not at once); n: notice the loss by a take; p: be paused.
        choices = []
        for i, p in enumerate(procs):
            c = [""]
            if p is NEW:
                c.append("s")
            else:
                if p[3] and up[i] and p[1] < EVERY and not prompt and not calls:
                    c.append("w")
                if not up[i] and not p[3]:
                    c.append("n")
                if pauses:
                    c.append("p")
            choices.append(c)
        for wipe in (False, True) if wipes and up[0] else (False,):
            for what in product(*choices):
                n_paused = sum(w == "p" for w in what)
                if n_paused > pauses and pauses != ALWAYS:
                    continue
                yield act(state, up, what, wipe, n_paused, rule, links, STALE if calls else EVERY)


def act(state, up, what, wipe, n_paused, rule, links, late):
    """late: the most steps between two renewals that prove unbroken contact."""
    procs, was_up, since, pauses, wipes = state
    k = len(procs)
    now = []
    for p in procs:  # a step passes
        if p is NEW:
            now.append(NEW)
            continue
        slot, tried, streak, lost, mature, stale, seen = p
        now.append([HOLD if wipe else min(HOLD, slot + 1), min(STALE + 1, tried + 1), streak, lost, mature, stale, seen])
    calls = []
    for i in range(k):
        p = now[i]
        if p is NEW:
            if what[i] == "s" and up[i]:
                now[i] = [HOLD, 0, 0, False, False, False, ()]
                calls.append((i, True))
            continue
        if what[i] == "p":
            continue
        if p[1] > STALE and rule != "no stale":
            p[5] = True
        due = p[1] >= EVERY or p[3]
        if what[i] == "n":
            p[3] = True
        if what[i] != "w" and due:
            calls.append((i, False))
    # Calls of one step come in any order; the worst is that everybody counts before the next one opens: opens come last, and one by one.
    calls.sort(key=lambda c: (c[1] or now[c[0]][0] >= HOLD))
    for i, first in calls:
        p = now[i]
        waited, p[1] = p[1], 0
        if not up[i]:
            p[3] = True
            continue
        gone = p[0] >= HOLD
        p[0] = 0
        count = sum(q is not NEW and q[0] < HOLD for q in now)
        broken = p[3] or first
        gap = 0 if broken and rule != "wall clock" else min(late, waited)
        old = p[6] if rule != "wall clock" else tuple((a, n) for a, n in p[6])
        p[6] = merged(tuple((a + gap, n) for a, n in old if a + gap < KEPT) + ((0, count),))
        if gone or first:
            p[2], p[4] = 0, False
        elif rule == "as drafted" and p[3]:
            p[4] = True
        elif (broken or waited > late and rule != "late renewals count") and not p[4]:
            p[2] = 0
        else:
            p[2] = min(MATURE, p[2] + 1)
            p[4] = p[4] or p[2] >= MATURE
        p[3], p[5] = False, False
    if rule == "wall clock":  # numbers age while the store is unavailable, too
        for i in range(k):
            if now[i] is not NEW and now[i][3]:
                now[i][6] = merged(tuple((a + 1, n) for a, n in now[i][6] if a + 1 < KEPT) or now[i][6][-1:])
    total = F(0)
    for i in range(k):
        p = now[i]
        if p is not NEW and not up[i] and what[i] != "p" and (p[4] or rule == "no maturity") and not p[5]:
            total += F(1, max(n for _, n in p[6]))
    nxt = (tuple(NEW if p is NEW else tuple(p) for p in now), up[0], 1 if up[0] != was_up else min(9, since + 1), pauses if pauses == ALWAYS else pauses - n_paused, wipes - wipe)
    if not links:
        nxt = (tuple(sorted(nxt[0], key=repr)),) + nxt[1:]
    word = ("up" if up[0] else "down") if not links else "/".join("up" if u else "down" for u in up)
    word += "".join(f" {w}{i}" for i, w in enumerate(what) if w) + (" wipe" if wipe else "")
    return nxt, word, total


def merged(seen):
    """Of numbers that are equally old the largest; an older one that is smaller than a newer one says nothing."""
    kept, top = [], 0
    for a, n in sorted(seen, key=lambda s: (s[0], -s[1])):
        if n > top:
            kept.append((a, n))
            top = n
    return tuple(kept)


def part2():
    check([
        # speed, name, instances, most steps, rule, options, expected: H never more than 1, V more than 1
        ("quick", "the rule", 2, 200, "", {}, "H"),
        ("quick", "the rule, short interruptions, prompt returns", 2, 200, "", {"short": True, "prompt": True}, "H"),
        ("quick", "the rule, short interruptions, late returns", 2, 40, "", {"short": True}, "V"),
        ("quick", "the rule, one step of pause", 2, 16, "", {"pauses": 1}, "H"),
        ("slow", "the rule, one step of pause", 2, 200, "", {"pauses": 1}, "H"),
        ("slow", "the rule, three steps of pauses", 2, 60, "", {"pauses": 3}, "H"),
        ("quick", "the rule, slots lost once", 2, 24, "", {"wipes": 1}, "H"),
        ("slow", "the rule, slots lost once", 2, 200, "", {"wipes": 1}, "H"),
        ("slow", "the rule, slots lost three times", 2, 200, "", {"wipes": 3}, "H"),
        ("quick", "the rule", 3, 10, "", {}, "H"),
        ("slow", "the rule", 3, 26, "", {}, "H"),
        ("slow", "the rule", 4, 11, "", {}, "H"),
        ("quick", "the rule, ways fail one by one", 2, 24, "", {"links": True}, "V"),
        ("quick", "mature at a return, as drafted", 2, 40, "as drafted", {}, "V"),
        ("quick", "no maturity", 2, 40, "no maturity", {}, "V"),
        ("quick", "numbers age during an outage", 2, 60, "wall clock", {}, "V"),
        ("quick", "pauses are not noticed", 2, 40, "no stale", {"pauses": 3}, "V"),
        ("quick", "renewals that are late count as others", 2, 40, "late renewals count", {"pauses": 2}, "V"),
    ])


def part3():
    global EVERY, KEPT, HOLD, STALE
    EVERY, KEPT, HOLD = 1, 5, 10  # a step is a minute, and nothing is scaled down
    STALE = EVERY * MATURE
    calls = {"calls": True}
    check([
        ("slow", "in calls", 2, 16, "", calls, "H"),
        ("quick", "in calls", 2, 9, "", calls, "H"),
        ("slow", "in calls", 3, 7, "", calls, "H"),
        ("quick", "in calls, short interruptions and returns", 2, 60, "", calls | {"short": True}, "V"),
        ("quick", "in calls, no maturity", 2, 60, "no maturity", calls, "V"),
        ("quick", "in calls, pauses are not noticed", 2, 60, "no stale", calls, "V"),
    ])
    EVERY, KEPT, HOLD = 2, 5, 8  # a step is half a minute; KEPT and HOLD are scaled down
    STALE = EVERY * MATURE
    check([("slow", "in calls, in half minutes", 2, 100, "", calls, "H")])


def check(runs):
    for speed, name, k, depth, rule, options, want in runs:
        if quick and speed == "slow":
            continue
        began = time.time()
        total, how, states, steps = explore(k, depth, rule, **options)
        got = "H" if total <= 1 else "V"
        far = f"all histories, {states} states" if got == "H" and steps < depth else f"{steps} steps, {states} states"
        line(got == want, f"expected={want} got={got} {name}: {k} instances, {far}, worst {float(total):.3f}, {time.time() - began:.0f} s"
             + (f"\n   {'; '.join(how)}" if got == "V" else ""))


part1()
part2()
part3()
print("ALL AS EXPECTED" if not wrong else f"{wrong} MISMATCHES")
sys.exit(wrong != 0)
