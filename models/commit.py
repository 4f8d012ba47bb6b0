#!/usr/bin/env python3
"""commit.py - a transaction in PostgreSQL was sent, and the answer to its commit was lost.

store/pgstore writes a bucket in one transaction of two messages: the row is locked and read; then it is written and committed.
Each transaction leaves a mark (process, number, instant) in the rows that it writes. If the answer to a commit is lost, the process
looks the mark up: it waits for the row's lock, and reads the marks. Without the mark the transaction was not committed, and is sent
again under another number.

Explored: every history of some processes with some takes of one or two rows; of connections that are cut while the server's
backend goes on, and carries out later what was sent; of backends that end (killed, or idle in a transaction for too long); of
callers that leave; of a server that crashes and starts again, or is replaced by a standby without the last commits; of other
processes that write the row or reset it; of rows that are cleaned; of clocks that step, and of machines that are suspended.

Checked:
  missing   a take was answered as granted and is not counted (unless a standby without it took the server's place)
  twice     a take is counted twice
  later     a take was answered with "nothing was done", and is counted
  unknown   a take was answered with "unknown", although the server could be asked in time and the row had room for marks

Units that were counted and are over, cleaned, or reset stay counted here: a take that is counted again afterwards is counted twice.

Exit status: 1 if a run does not give the expected verdict: H holds, V violated. --quick leaves out the runs of more than some
seconds. Words choose the runs whose name has one of them."""
import sys
import time
from collections import namedtuple

quick = "--quick" in sys.argv
only = [a for a in sys.argv[1:] if not a.startswith("--")]

LIFE = 3  # of a mark, and the grace of an unused row, in ticks: 60 s
IDLE = 2  # a transaction that waits for its client for longer is ended: 2 s, so the model exaggerates it
TRIES = 2  # how often a transaction is sent

# A transaction as its process sees it. phase: lock (it was begun), ready (decided), commit (sent), look (the answer was lost).
# at: the server's clock, read under the lock. began, sent: by the process's clock; real: when it began, though the process was suspended.
Lane = namedtuple("Lane", "takes rows num phase at began sent real tries")
Proc = namedtuple("Proc", "known num queue lanes")  # known: the rows that are known to be there
# A transaction as the server sees it. conn: its client is connected. todo: rows to insert and to lock. state: run, ready, missing,
# done, refused, dead. sent: the writes and the commit have arrived. idle: since when it waits for its client.
Back = namedtuple("Back", "proc num takes rows conn todo state sent at idle")
# rows: None or (marks, unused from); hold: the transaction that has a row's lock, or has inserted a row that is not there yet.
# counts: how often each take is counted. last: the last number of each process. standby: (rows, counts, last).
State = namedtuple("State", "now step rows hold backs procs counts told lost last standby ops stepped")

# The rules. A run leaves out some.
RULES = {
    "lock",  # a lookup waits for the row's lock
    "inserted",  # a lookup inserts the row first if it is not there, and so waits for somebody who has inserted it
    "number",  # a mark has the transaction's number
    "in the row",  # each row has marks of its own; otherwise each process has one
    "busy",  # a process begins no transaction of a row while it looks one up there
    "age",  # a missing mark, or row, says something only within a mark's life
    "own clock",  # this life is measured by the process's clock
    "from the begin",  # from the begin of the transaction, not from when its commit was sent
    "server's clock",  # and by the server's clock
    "floor",  # who drops marks leaves the newest instant of those dropped: what is not newer is not known
    "lives",  # marks are kept as long as a missing one says something
    "grace",  # an unused row is kept as long
    "full",  # if a row has no room for more marks, a missing one says nothing
    "reset keeps",  # a reset keeps the marks
    "pooler",  # an error of the class "connection exception", as poolers send it when they lost the server, is no refusal
}
# FIRST: as pgstore was written first. The floor is a way to depend less on clocks.
FIRST = RULES - {"inserted", "from the begin", "server's clock", "floor", "pooler"}
NEEDED = FIRST | {"inserted", "from the begin", "server's clock", "pooler"}


class Violated(Exception):
    pass


def put(t, i, x):
    return t[:i] + (x,) + t[i + 1 :]


class Model:
    def __init__(self, takes, rows, there, ops, horizon=0, lanes=1, room=9, use=0, jump=LIFE + 1, rules=NEEDED):
        """takes: per process, the rows of each take in its queue. there: the rows that exist at the start, and are known. ops: what may
        happen how often. room: for so many marks. use: so long a take counts. jump: how far a clock steps."""
        self.takes, self.nrows, self.there, self.ops, self.horizon = takes, rows, there, ops, horizon
        self.nlanes, self.room, self.use, self.jump, self.rules = lanes, room, use, jump, rules
        self.rows_of = [t for p in takes for t in p]
        self.keep = LIFE if "lives" in rules else 0

    def start(self):
        n, procs = 0, []
        rows = tuple(((), -9) if i in self.there else None for i in range(self.nrows))
        for p in self.takes:
            procs.append(Proc(tuple(r is not None for r in rows), 0, tuple(range(n, n + len(p))), ()))
            n += len(p)
        counts, last = (0,) * n, (0,) * len(procs) if "in the row" not in self.rules else ()
        standby = (rows, counts, last) if dict(self.ops).get("promote") else None
        return State(0, 0, rows, (None,) * self.nrows, (), tuple(procs), counts, ("",) * n, (False,) * n, last, standby,
                     tuple(sorted(self.ops.items())), False)

    def has(self, s, op):
        return dict(s.ops).get(op, 0) > 0

    def less(self, s, op):
        return s._replace(ops=tuple((k, v - (k == op)) for k, v in s.ops))

    # The server.

    def marked(self, marks, proc, num, at):
        """The marks of a row after a transaction. Process 0 stands for the floor."""
        gone = [m for m in marks if m[0] and m[2] < at - self.keep]
        floor = [m[2] for m in marks if not m[0]]
        marks = [m for m in marks if m[0] and m[0] != proc and m not in gone]
        if len(marks) >= self.room:
            cut = len(marks) - self.room + 1
            gone, marks = gone + marks[:cut], marks[cut:]
        floor += [m[2] for m in gone if m[0] != proc]
        head = ((0, 0, max(floor)),) if floor and "floor" in self.rules else ()
        return head + tuple(marks) + ((proc, num, at),)

    def rollback(self, s, b):
        """The server without the locks of a transaction."""
        return s._replace(hold=tuple(None if h == b[:2] else h for h in s.hold))

    def ended(self, s, i, state):
        """Transaction i has ended; who is connected still has to be told."""
        s = self.rollback(s, s.backs[i])
        if s.backs[i].conn:
            b = s.backs[i]._replace(state=state, todo=(), at=0, idle=0)
            return s._replace(backs=put(s.backs, i, b))
        return s._replace(backs=s.backs[:i] + s.backs[i + 1 :])

    def clock(self, s):
        return s.now + s.step

    def serve(self, s, i):
        """What the server may do with transaction i."""
        b = s.backs[i]
        me, name = b[:2], f"T{b.proc}.{b.num}"
        if b.state == "run":
            what, r = b.todo[0]
            if what == "insert":
                if s.rows[r] is None:
                    if s.hold[r] not in (None, me):
                        return  # it waits for who has inserted it
                    s = s._replace(hold=put(s.hold, r, me))
            elif s.rows[r] is None and s.hold[r] != me:
                yield self.ended(s, i, "missing"), f"{name} finds no row {r}"
                return
            elif s.hold[r] not in (None, me):
                return
            else:
                s = s._replace(hold=put(s.hold, r, me))
            rest = b.todo[1:]
            b = b._replace(todo=rest, state="run" if rest else "ready", at=self.clock(s), idle=s.now)
            yield s._replace(backs=put(s.backs, i, b)), f"{name} {what}s row {r}"
        elif b.state == "ready" and b.sent:
            rows, counts, last = s.rows, s.counts, s.last
            for r in b.rows:
                marks = self.marked(rows[r][0] if rows[r] else (), b.proc + 1, b.num, b.at)
                rows = put(rows, r, (marks, b.at + self.use))
            for t in b.takes:
                counts = put(counts, t, counts[t] + 1)
            if last:
                last = put(last, b.proc, b.num)
            yield self.ended(s._replace(rows=rows, counts=counts, last=last), i, "done"), f"{name} is committed"
            if b.conn and self.has(s, "refuse"):
                yield self.ended(self.less(s, "refuse"), i, "refused"), f"{name} is refused"
        if b.state in ("run", "ready"):
            if not b.conn:
                yield self.ended(s, i, "dead"), f"{name}'s backend ends"
            elif self.has(s, "kill"):
                yield self.ended(self.less(s, "kill"), i, "dead"), f"{name}'s backend is killed"

    def ask(self, s, p, l):
        """The answer to a lookup: done, not, old, full, or None while it has to wait."""
        R, r = self.rules, l.rows[0]
        row, hold = s.rows[r], s.hold[r]
        if hold is not None and "lock" in R and (row is not None or "inserted" in R):
            return None
        done, known, dropped = False, True, False
        if not s.last:
            for m in row[0] if row is not None else ():
                if m[0] == p + 1:
                    done = m[1] == l.num or "number" not in R
                    break
                if not m[0] and m[2] >= l.at:
                    dropped = True
            else:
                if row is not None and "full" in R and len([m for m in row[0] if m[0]]) >= self.room:
                    return "full"
        else:
            done = s.last[p] == l.num
        if done:
            return "done"
        if dropped:
            return "dropped"
        if "age" in R:
            known = "own clock" not in R or s.now - (l.began if "from the begin" in R else l.sent) < LIFE
            if "server's clock" in R:
                known = known and self.clock(s) - l.at < LIFE
        return "not" if known else "old"

    # A process.

    def answer(self, s, takes, what):
        told = s.told
        for t in takes:
            if not told[t]:
                told = put(told, t, what)
        return s._replace(told=told)

    def lane(self, s, p, k, l):
        proc = s.procs[p]
        lanes = put(proc.lanes, k, l) if l is not None else proc.lanes[:k] + proc.lanes[k + 1 :]
        return s._replace(procs=put(s.procs, p, proc._replace(lanes=lanes)))

    def forget(self, s, p, num):
        """The process is done with a connection."""
        return s._replace(backs=tuple(b for b in s.backs if b[:2] != (p, num)))

    def begin(self, s, p, k, takes, tries):
        """Transaction of some takes, in lane k."""
        proc = s.procs[p]
        num = proc.num + 1
        rows = tuple(sorted({r for t in takes for r in self.rows_of[t]}))
        todo = tuple(("insert", r) for r in rows if not proc.known[r]) + tuple(("lock", r) for r in rows)
        l = Lane(takes, rows, num, "lock", 0, s.now, 0, s.now, tries)
        lanes = proc.lanes + (l,) if k == len(proc.lanes) else put(proc.lanes, k, l)
        b = Back(p, num, takes, rows, True, todo, "run", False, 0, 0)
        return s._replace(procs=put(s.procs, p, proc._replace(num=num, lanes=lanes)), backs=tuple(sorted(s.backs + (b,))))

    def again(self, s, p, k, l, why):
        """Nothing was done: it is sent again for those who wait, or they are told."""
        waiting = tuple(t for t in l.takes if not s.told[t])
        if not waiting:
            yield self.lane(s, p, k, None), f"{why}; nobody waits"
            return
        if l.tries < TRIES:
            yield self.begin(s, p, k, waiting, l.tries + 1), f"{why}; it is sent again"
        yield self.lane(self.answer(s, waiting, "no"), p, k, None), f"{why}; nothing was done"

    def work(self, s, p):
        R, proc = self.rules, s.procs[p]
        busy = {r for l in proc.lanes if "busy" in R or l.phase != "look" for r in l.rows}
        if proc.queue and len(proc.lanes) < self.nlanes:
            q = proc.queue
            for takes in dict.fromkeys([q[: n + 1] for n in range(len(q))] + [(t,) for t in q]):
                if not any(r in busy for t in takes for r in self.rows_of[t]):
                    m = s._replace(procs=put(s.procs, p, proc._replace(queue=tuple(t for t in q if t not in takes))))
                    yield self.begin(m, p, len(proc.lanes), takes, 1), f"P{p} begins T{p}.{proc.num + 1} of {', '.join(f'take {t}' for t in takes)}"
        if self.has(s, "leave"):
            for t in proc.queue:
                m = self.less(s, "leave")
                m = m._replace(procs=put(s.procs, p, proc._replace(queue=tuple(q for q in proc.queue if q != t))))
                yield self.answer(m, (t,), "no"), f"the caller of take {t} leaves"
            for t in (t for l in proc.lanes for t in l.takes if not s.told[t]):
                yield self.answer(self.less(s, "leave"), (t,), "unknown"), f"the caller of take {t} leaves"
        for k, l in enumerate(proc.lanes):
            name = f"T{p}.{l.num}"
            if l.phase == "look":
                yield from self.look(s, p, k, l)
                continue
            i = next(i for i, b in enumerate(s.backs) if b[:2] == (p, l.num))
            b = s.backs[i]
            gone = self.forget(s, p, l.num)
            if self.has(s, "cut"):
                c = self.less(s, "cut")
                left = self.forget(c, p, l.num) if b.state in ("done", "dead", "refused", "missing") else \
                    c._replace(backs=put(c.backs, i, b._replace(conn=False)))
                if l.phase == "commit":
                    yield self.lane(left, p, k, l._replace(phase="look")), f"{name}'s connection is cut: the answer is lost"
                else:
                    yield from self.again(left, p, k, l, f"{name}'s connection is cut")
            if l.phase == "commit" and self.has(s, "pooler"):
                c = self.less(s, "pooler")
                left = self.forget(c, p, l.num) if b.state != "ready" else c._replace(backs=put(c.backs, i, b._replace(conn=False)))
                if "pooler" in R:
                    yield self.lane(left, p, k, l._replace(phase="look")), f"a pooler has lost {name}: the answer is lost"
                else:
                    yield from self.again(left, p, k, l, f"a pooler has lost {name}, and answers so with an error")
            if l.phase == "lock":
                if b.state == "ready":
                    known = tuple(x or r in l.rows and s.rows[r] is not None and s.rows[r][0] != () for r, x in enumerate(proc.known))
                    m = s._replace(procs=put(s.procs, p, proc._replace(known=known)))
                    yield self.lane(m, p, k, l._replace(phase="ready", at=b.at)), f"P{p} decides {name}"
                elif b.state == "missing":
                    known = tuple(x and not (r in l.rows and s.rows[r] is None) for r, x in enumerate(proc.known))
                    m = gone._replace(procs=put(s.procs, p, proc._replace(known=known)))
                    yield from self.again(m, p, k, l, f"P{p} hears that a row is missing")
                elif b.state == "dead":
                    yield from self.again(gone, p, k, l, f"P{p} hears that {name} has ended")
            elif l.phase == "ready":
                m = s._replace(backs=put(s.backs, i, b._replace(sent=True))) if b.state == "ready" else s
                yield self.lane(m, p, k, l._replace(phase="commit", sent=s.now)), f"P{p} sends {name}'s commit"
            elif b.state == "done":
                yield self.lane(self.answer(gone, l.takes, "yes"), p, k, None), f"P{p} hears that {name} is committed"
            elif b.state == "refused":
                yield from self.again(gone, p, k, l, f"P{p} hears that {name} is refused")
            elif b.state == "dead":
                yield self.lane(gone, p, k, l._replace(phase="look")), f"{name}'s connection has ended: the answer is lost"

    def look(self, s, p, k, l):
        name = f"P{p} looks T{p}.{l.num} up"
        if all(s.told[t] for t in l.takes):
            yield self.lane(s, p, k, None), f"P{p} stops, nobody waits for T{p}.{l.num}"
        got = self.ask(s, p, l)
        if got == "done":
            yield self.lane(self.answer(s, l.takes, "yes"), p, k, None), f"{name}: committed"
        elif got == "not":
            yield from self.again(s, p, k, l, f"{name}: not committed")
        elif got:
            if (got == "old" or got == "dropped" and self.room == 9) and s.now - l.real < LIFE and not s.stepped:
                raise Violated("unknown")
            yield self.lane(self.answer(s, l.takes, "unknown"), p, k, None), f"{name}: unknown, {got}"

    # What else may happen.

    def world(self, s):
        if s.now < self.horizon:
            t = s._replace(now=s.now + 1)
            for i in reversed(range(len(t.backs))):
                b = t.backs[i]
                if b.state == "ready" and not b.sent and t.now - b.idle > IDLE:
                    t = self.ended(t, i, "dead")
            yield t, "tick"
            if self.has(s, "sleep"):
                for p, proc in enumerate(t.procs):
                    if proc.lanes:
                        lanes = tuple(l._replace(began=l.began + 1, sent=l.sent + 1) for l in proc.lanes)
                        yield self.less(t, "sleep")._replace(procs=put(t.procs, p, proc._replace(lanes=lanes)), stepped=True), f"tick, P{p} suspended"
        if self.has(s, "step"):
            for d in (self.jump, -self.jump):
                yield self.less(s, "step")._replace(step=s.step + d, stepped=True), f"the server's clock steps by {d}"
        dead = s._replace(hold=(None,) * self.nrows, backs=tuple(b._replace(state="dead", todo=(), at=0, idle=0) for b in s.backs if b.conn))
        if self.has(s, "crash"):
            yield self.less(dead, "crash"), "the server crashes and starts again"
        if s.standby is not None and self.has(s, "promote"):
            now = (s.rows, s.counts, s.last)
            if s.standby != now:
                yield s._replace(standby=now), "the standby follows"
            rows, counts, last = s.standby
            lost = tuple(x or counts[i] < s.counts[i] for i, x in enumerate(s.lost))
            yield self.less(dead, "promote")._replace(rows=rows, counts=counts, last=last, lost=lost, standby=None), "the standby takes the server's place"
        for r, row in enumerate(s.rows):
            if s.hold[r] is not None:
                continue
            if row is not None and row[1] < self.clock(s) - (LIFE if "grace" in self.rules else 0) and self.has(s, "clean"):
                yield self.less(s, "clean")._replace(rows=put(s.rows, r, None)), f"row {r} is cleaned"
            for what, use in ("write", self.use), ("reset", 0):
                if self.has(s, what):
                    marks, at, n = row[0] if row else (), self.clock(s), dict(s.ops)[what]
                    marks = marks if what == "write" or "reset keeps" in self.rules else ()
                    new = (self.marked(marks, 100 + n, 1, at), at + use)
                    yield self.less(s, what)._replace(rows=put(s.rows, r, new)), f"another process {what}s row {r}"

    def moves(self, s):
        for i in range(len(s.backs)):
            yield from self.serve(s, i)
        for p in range(len(s.procs)):
            yield from self.work(s, p)
        yield from self.world(s)

    def check(self, s):
        for t, n in enumerate(s.counts):
            if n > 1:
                raise Violated("twice")
            if s.told[t] == "no" and n:
                raise Violated("later")
            if s.told[t] == "yes" and not n and not s.lost[t]:
                raise Violated("missing")

    def explore(self):
        first = self.start()
        back, todo, ends = {first: None}, [first], set()
        while todo:
            later = []
            for s in todo:
                word = ""
                try:
                    for n, word in self.moves(s):
                        if n not in back:
                            back[n] = (s, word)
                            later.append(n)
                            self.check(n)
                except Violated as v:
                    how = [word]
                    if str(v) == "unknown":
                        how = ["a lookup says unknown"]
                    while back[s]:
                        s, w = back[s]
                        how.append(w)
                    return str(v), how[::-1], len(back), ends
                if all(s.told):
                    ends.add(s.told)
            todo = later
        return "", [], len(back), ends


def left(*rules):
    return NEEDED - set(rules)


ONE = dict(takes=[[(0,)]], rows=1, there=(0,))  # one take of a row that is there
NEW = ONE | dict(there=())  # of one that is not
TURNS = dict(takes=[[(0,), (0,)]], rows=1, there=(0,))  # two takes in one process
BOTH = dict(takes=[[(0,)], [(0,)]], rows=1, there=(0,))  # one take in each of two processes
PAIR = dict(takes=[[(0, 1)]], rows=2, there=(0, 1))  # one take of two rows
PAIRS = dict(takes=[[(0, 1)], [(0, 1)]], rows=2, there=(0, 1))
SIDE = dict(takes=[[(0,), (1,)]], rows=2, there=(0, 1), lanes=2)  # two transactions of one process at once
OLD = dict(horizon=LIFE + 2)  # what was sent may be looked up after a mark's life
ALL = dict(cut=2, kill=1, crash=1, refuse=1, pooler=1, leave=1)

# speed, expected, name, rules, scenario
RUNS = [
    ("quick", "H", "an existing row", NEEDED, ONE | dict(ops=ALL)),
    ("quick", "H", "a new row", NEEDED, NEW | dict(ops=ALL)),
    ("quick", "H", "two takes of one process", NEEDED, TURNS | dict(ops=dict(cut=2, kill=1, leave=1))),
    ("slow", "H", "two takes of one process, everything", NEEDED, TURNS | dict(ops=ALL)),
    ("slow", "H", "two takes of one process and a new row, everything", NEEDED, TURNS | dict(there=(), ops=ALL)),
    ("quick", "H", "two processes", NEEDED, BOTH | dict(ops=dict(cut=1, kill=1))),
    ("slow", "H", "two processes, everything", NEEDED, BOTH | dict(ops=ALL)),
    ("quick", "H", "two processes and a new row", NEEDED, BOTH | dict(there=(), ops=dict(cut=1, kill=1))),
    ("slow", "H", "two processes and a new row, everything", NEEDED, BOTH | dict(there=(), ops=ALL)),
    ("slow", "H", "two processes, one with two takes", NEEDED, BOTH | dict(takes=[[(0,), (0,)], [(0,)]], ops=dict(cut=2, kill=1, leave=1))),
    ("quick", "H", "two rows", NEEDED, PAIR | dict(ops=ALL)),
    ("quick", "H", "two rows, one is new", NEEDED, PAIR | dict(there=(1,), ops=ALL)),
    ("quick", "H", "two rows of two processes", NEEDED, PAIRS | dict(ops=dict(cut=1))),
    ("slow", "H", "two rows of two processes, one is new", NEEDED, PAIRS | dict(there=(1,), ops=dict(cut=2, kill=1))),
    ("slow", "H", "two new rows of two processes", NEEDED, PAIRS | dict(there=(), ops=dict(cut=2, kill=1))),
    ("quick", "H", "transactions side by side", NEEDED, SIDE | dict(ops=dict(cut=1, kill=1, leave=1))),
    ("quick", "H", "a standby takes the server's place", NEEDED, ONE | dict(ops=dict(cut=2, kill=1, promote=1))),
    ("quick", "H", "a standby takes the server's place, a new row", NEEDED, NEW | dict(ops=dict(cut=2, promote=1))),
    ("slow", "H", "a standby takes the server's place, two processes", NEEDED, BOTH | dict(there=(), ops=dict(cut=2, promote=1))),
    ("quick", "H", "writes and resets of others", NEEDED, NEW | dict(ops=dict(cut=2, write=2, reset=1))),
    ("quick", "H", "no room for marks", NEEDED, NEW | dict(room=1, ops=dict(cut=2, write=2))),
    ("quick", "H", "a life passes", NEEDED, ONE | OLD | dict(ops=dict(cut=1, write=1))),
    ("quick", "H", "a life passes, a row is cleaned", NEEDED, NEW | OLD | dict(ops=dict(cut=1, clean=1))),
    ("slow", "H", "a life passes, a row is written and cleaned", NEEDED, ONE | OLD | dict(use=1, ops=dict(cut=1, kill=1, write=1, reset=1, clean=2))),
    ("slow", "H", "a life passes, two processes", NEEDED, BOTH | OLD | dict(there=(), ops=dict(cut=1, clean=1))),
    ("quick", "H", "a process is suspended", NEEDED, ONE | OLD | dict(ops=dict(cut=1, write=1, sleep=2))),
    ("quick", "H", "a process is suspended, a row is cleaned", NEEDED, ONE | OLD | dict(ops=dict(cut=1, clean=1, sleep=2))),
    ("quick", "H", "a clock steps", NEEDED, ONE | dict(ops=dict(cut=1, write=1, clean=1, step=1))),
    ("slow", "H", "a clock steps, a life passes", NEEDED, ONE | OLD | dict(ops=dict(cut=1, write=1, clean=1, step=1))),
    ("quick", "V", "a clock steps ahead and back", NEEDED, ONE | dict(ops=dict(cut=1, write=1, step=2))),
    ("quick", "H", "a clock steps ahead and back, with the floor", NEEDED | {"floor"}, ONE | dict(ops=dict(cut=1, write=2, step=3))),
    ("quick", "V", "a clock steps ahead and back, a row is cleaned, with the floor", NEEDED | {"floor"}, ONE | dict(ops=dict(cut=1, clean=1, step=2))),
    ("quick", "H", "with the floor instead of a count, no room for marks", left("full") | {"floor"}, NEW | dict(room=1, ops=dict(cut=2, write=2))),
    ("quick", "H", "as first: existing rows", FIRST, PAIR | dict(ops=ALL | dict(pooler=0))),
    ("quick", "V", "as first: a new row", FIRST, NEW | dict(ops=dict(cut=1))),
    ("quick", "V", "as first: two rows, the first one is new", FIRST, PAIR | dict(there=(1,), ops=dict(cut=1))),
    ("quick", "H", "as first: two rows, the second one is new", FIRST, PAIR | dict(there=(0,), ops=dict(cut=1, kill=1, crash=1))),
    ("quick", "V", "the lookup does not wait for the lock", left("lock"), ONE | dict(ops=dict(cut=1))),
    ("quick", "V", "the lookup does not wait for an insertion", left("inserted"), NEW | dict(ops=dict(cut=1))),
    ("quick", "V", "a mark has no number", left("number"), TURNS | dict(ops=dict(cut=1))),
    ("quick", "V", "a mark per process, not in the rows", left("in the row"), SIDE | dict(ops=dict(cut=1))),
    ("quick", "V", "the row is not busy during a lookup", left("busy"), TURNS | dict(lanes=2, ops=dict(cut=1))),
    ("quick", "V", "marks are dropped earlier than lookups end", left("lives"), ONE | OLD | dict(ops=dict(cut=1, write=1))),
    ("quick", "V", "an old lookup believes that a mark is missing", left("age"), ONE | OLD | dict(ops=dict(cut=1, write=1))),
    ("quick", "V", "an old lookup believes that a row is missing", left("age"), ONE | OLD | dict(ops=dict(cut=1, clean=1))),
    ("quick", "V", "the age is that of the commit", left("from the begin", "server's clock"), ONE | OLD | dict(ops=dict(cut=1, write=1))),
    ("quick", "V", "the age is not by the server's clock, which steps", left("server's clock"), ONE | dict(ops=dict(cut=1, write=1, step=1))),
    ("quick", "V", "the age is not by the server's clock, a process is suspended", left("server's clock"), ONE | OLD | dict(ops=dict(cut=1, write=1, sleep=2))),
    ("quick", "H", "with the server's clock, the age may be that of the commit", left("from the begin"), ONE | OLD | dict(ops=dict(cut=1, write=1))),
    ("quick", "V", "the age is by the server's clock only, which steps", left("own clock"), ONE | OLD | dict(ops=dict(cut=1, write=1, step=1))),
    ("quick", "V", "rows are cleaned at once", left("grace"), ONE | OLD | dict(ops=dict(cut=1, clean=1))),
    ("quick", "V", "a row without room counts as others", left("full"), ONE | dict(room=1, ops=dict(cut=1, write=1))),
    ("quick", "V", "a reset drops the marks", left("reset keeps"), ONE | dict(ops=dict(cut=1, reset=1))),
    ("quick", "V", "what a pooler says counts as the server's word", left("pooler"), ONE | dict(ops=dict(pooler=1))),
]


def main():
    wrong = 0
    for speed, want, name, rules, how in RUNS:
        if quick and speed != "quick" or only and not any(o in name for o in only):
            continue
        began = time.time()
        bad, trace, states, ends = Model(rules=rules, **how).explore()
        got = "V" if bad else "H"
        wrong += got != want
        word = "ok" if got == want else "MISMATCH"
        print(f"{word} expected={want} got={got} {name}: {bad + '; ' if bad else ''}{states} states, {time.time() - began:.0f} s", flush=True)
        if bad:
            print("   " + "; ".join(trace))
        if "--ends" in sys.argv:
            print("   ", sorted(ends))
    print("ALL AS EXPECTED" if not wrong else f"{wrong} MISMATCHES")
    sys.exit(wrong != 0)


main()
