#!/usr/bin/env python3
"""line.py - one line over all processes, with several waiters in each.

It goes on where tickets.pml ends: waiters behind the front of their process, limits that keep shares for priorities, buckets that refuse
for long, calendar windows, callers without tickets, leases, processes of an older version, tickets that end.

Every state of a small system is enumerated. A slot is a caller: it waits, is granted, and comes again (or not) for ever. Slots of one
process wait in its lines, one line per bucket: only who is first in its line asks, as in waitqueue.go. Time is not counted: whatever
may take its time may take it for ever, unless it is fair. Fair are the asking of who is in front, units that come back, the end of
tickets that nobody renews, ageing, renewals of leases. Not fair are arrivals, polls, crashes, the end of tickets between two tries, and
a bucket that refuses for long.

Checked:  over      used never exceeds what the taker may use (in each state)
          starves   there is a fair infinite execution in which a given slot waits for ever (strongly connected components of the states in
                    which it waits; weak fairness: a fair action that is possible in each state of the component occurs in it)
          overtaken how often a slot that waits sees grants of slots of its priority that began to wait later than it

H: holds. V: violated, so the rule that the run leaves out is needed. A violated run names the actions of the loop, with the slot or bucket.
Exit status 1 if a verdict is not the one expected. --quick: two parts, without their slow runs; names of parts: only those.
"""
import sys
from typing import NamedTuple


class Rules(NamedTuple):
    """What a run changes. The defaults are the rules that are needed."""
    tickets: bool = True
    # Where a refused take leaves its ticket. order: limits have an order (by window, longest first: here a higher number). It claims in the first
    # one that refuses it, keeps what it claims in those before, and claims nothing in those after. each: in each that ever refused it; longest:
    # in each that ever refused it longest. code: as internal/record/line.go has it: as order, but it claims in all that come before the one that
    # refuses it, and nothing at all during a pause, nor do those whom it names; and it names who is behind it in the line where it waited so far.
    place: str = "order"
    claim: str = "kept"  # what earlier tickets claim: see fits
    never: bool = True  # a ticket that can never fit by the asker's amounts claims nothing
    back: bool = True  # arrival = clock - waited; else the instant of the first refusal
    jitter: bool = False  # the first refusal may set an arrival one place later: its request took longer
    local: str = "store"  # order inside a process: by the stores' arrivals, once they are known; own: by its own clock
    next: bool = False  # a grant leaves the ticket of who is next in the line of its process, in the same step
    names: int = 0  # each question, granted or not, leaves the tickets of so many who stand behind in the line of its process
    sorted: bool = True  # these stand behind it and one another, whatever the time of their requests says
    sleep: str = ""  # with each: no claim in a bucket while another one refuses for long. again: each time; once: once per bucket
    calendar: bool = True  # in a calendar window, a ticket that does not fit any more claims nothing
    expiry: str = ""  # tickets end between two tries: arrival: it is known again at the next try; lost: it is not
    renewed: str = "named"  # process: a ticket of a waiter that is gone is renewed with the others of its process
    servers: str = ""  # limits on two servers: reserved one after the other, cancelled on a refusal. window: the longer window first; key: the other
    front: bool = True  # only tickets of who is in front are renewed; who steps behind another one of its process keeps its arrival
    fronts: bool = True  # in a process, nobody stands behind those who may use less of the limit than it may: each priority has a front
    pause: bool = True  # a pause counts as the longest window: while it lasts, a take claims nothing elsewhere
    put_back: bool = True  # a cancelled reservation puts the ticket back that it ended
    told: bool = True  # who holds a lease learns that tickets wait, and returns it
    beside: bool = True  # leases are granted beside tickets only
    settled: bool = True  # what passed counts until its units come back; else until its hold would have ended, however early it was settled


class Slot(NamedTuple):
    process: int
    need: tuple
    priority: int = 0
    kind: str = "waits"  # polls: Allow, without a ticket; ignores: an older version, which sees no tickets; silent: never asks again


class System(NamedTuple):
    """limits: per bucket, what each priority may use. slow: buckets that refuse for long. unfair: buckets whose units need not come back, "pause".
    calendar: buckets that are empty again at once, at the window's end. held: units that never come back. start: slots that wait from the
    beginning, with a ticket in each of their buckets."""
    limits: tuple
    slots: tuple
    slow: tuple = ()
    unfair: tuple = ()
    calendar: tuple = ()
    held: tuple = ()
    start: tuple = ()
    gone: int = 0  # crashes, or withdrawals that were lost
    old: int = -1  # takes by older versions, -1: any number
    pauses: int = 0  # of bucket 0
    lease: int = 0  # size of a lease of bucket 0
    one: bool = False  # for "code": the limits are of one bucket, which has one line of tickets


class State(NamedTuple):
    used: tuple
    past: tuple  # of these, granted past an earlier ticket that may use less
    passed: tuple  # granted past the first ticket of the bucket since it is the first
    begin: tuple  # who waits, in the true order
    order: tuple  # who has an arrival, in the stores' order
    tickets: tuple  # per slot: mask of buckets
    asleep: tuple  # per slot: mask of buckets in which its ticket claims nothing
    slept: tuple
    line: tuple  # per slot: the bucket in whose line of its process it waits, -1: none
    aged: int
    ghost: int  # the slot whose ticket lies there without a waiter, -1
    gone: int
    old: int
    lease: int
    told: bool
    part: int = 0  # slots that have reserved the first of two limits
    paused: bool = False  # bucket 0
    pauses: int = 0  # that are still to come
    had: int = 0  # and ended a ticket there
    whose: tuple = ()  # claim code: the first ticket of the bucket when something passed it last, -1
    late: tuple = ()  # not settled: per bucket, what came back and still counts as passed


def put(t, i, v):
    return t[:i] + (v,) + t[i + 1:]


class Model:
    def __init__(self, system, rules):
        self.y, self.r = system, rules
        self.n, self.nb = len(system.slots), len(system.limits)
        self.priorities = any(s.priority for s in system.slots)
        self.held = system.held or (0,) * self.nb

    def first(self):
        n, nb, y = self.n, self.nb, self.y
        tickets = [0] * (n + 1)
        for i in y.start:
            tickets[i] = sum(1 << b for b in range(nb) if y.slots[i].need[b])
        none = (0,) * (n + 1)
        return State(self.held, (0,) * nb, (0,) * nb, y.start, y.start, tuple(tickets), none, none, (-1,) * n, 0, -1, y.gone, max(0, y.old), 0, False,
                     pauses=y.pauses, whose=(-1,) * nb if self.r.claim == "code" else (), late=() if self.r.settled else (0,) * nb)

    def slot(self, s, i):
        return self.y.slots[s.ghost if i == self.n else i]

    def before(self, s, x, i):
        """Is x's ticket before i's take in the stores' order? Who has no arrival yet is judged as its first refusal would place it."""
        if i in s.order:
            return s.order.index(x) < s.order.index(i)
        if not self.r.back or i not in s.begin:
            return not (self.priorities and i in s.begin and s.begin.index(i) < s.begin.index(x) and self.slot(s, i).priority > self.slot(s, x).priority)
        return s.begin.index(x) < s.begin.index(i)

    def fits(self, s, i, b, m, q):
        """May a take of m by slot i (priority q) have its units of bucket b? Returns "" or why not, and how it passes a ticket.

        claim: room  at most what the ticket's priority may still use, fitted into what the asker may use (as drafted)
               all   all that it asks for, fitted into what the asker may use
               zone  in the ticket's own terms, but nothing while the ticket's priority has no room at all
               own   in the ticket's own terms: it, and those before it, must fit after the take as well
               total own, except that a take may pass a ticket that does not fit now: as many units in all, since the same ticket is the
                     first, as are kept for the take's priority and not for the ticket's
               use   the same, as many units at once
               race  use, but it may pass a ticket that fits now, too
               kept  total for a ticket that needs more than would be left beside the kept share, use for the others
               code  kept, as the code counts: all that passed while the same ticket was the first, and nothing once a line is empty
        """
        used, limits = s.used[b], self.y.limits[b]
        if s.paused and b == 0:
            return "paused", ""
        if used + m > limits[q]:
            return "full", ""
        if self.slot_ignores(i):
            return "", ""
        claims, passes, rule = 0, "", self.r.claim
        for x in s.order:
            if x == i or not s.tickets[x] >> b & 1 or s.asleep[x] >> b & 1 or not self.before(s, x, i):
                continue
            t = self.slot(s, x)
            n, most = t.need[b], limits[t.priority]
            if self.r.never and n > most or self.r.calendar and b in self.y.calendar and used + n > most:
                continue
            if rule in ("room", "all"):
                claims += min(n, max(0, most - used)) if rule == "room" else n
                if used + m + claims > limits[q]:
                    return "queued", ""
                continue
            if used + m + claims + n <= most:
                claims += n
                continue
            kept = limits[q] - most
            if rule == "zone" and used >= most:
                continue
            if kept > 0 and rule in ("total", "use", "race", "kept", "code") and (rule == "race" or used + claims + n > most):
                large = rule == "total" or rule in ("kept", "code") and n > most - kept
                if (self.past_first(s, b) if large else s.past[b] + (0 if self.r.settled else s.late[b])) + m <= kept:
                    passes = "total" if large else passes or "use"
                    continue
            return "queued", ""
        return "", passes

    def past_first(self, s, b):
        """What was granted past the first ticket of bucket b."""
        return s.passed[b] if self.r.claim != "code" or s.whose[b] == self.lower(s, b) else 0

    def slot_ignores(self, i):
        return i < self.n and self.y.slots[i].kind == "ignores"

    def lower(self, s, b):
        """The first ticket of bucket b."""
        return next((x for x in s.order if s.tickets[x] >> b & 1), -1)

    def settle(self, s, t):
        """Counts of what passed begin anew where another ticket is the first by now; code: where a line is empty."""
        if self.r.claim == "code":
            for b in range(self.nb):
                if (s.past[b] or t.past[b] or t.whose[b] >= 0) and not any(x & self.together(b) for x in t.tickets):
                    t = t._replace(past=put(t.past, b, 0), passed=put(t.passed, b, 0), whose=put(t.whose, b, -1))
                    t = t if self.r.settled else t._replace(late=put(t.late, b, 0))
            return t
        for b in range(self.nb):
            if t.passed[b] and self.lower(s, b) != self.lower(t, b):
                t = t._replace(passed=put(t.passed, b, 0))
        return t

    def together(self, b):
        """The limits whose tickets lie in one line with those of limit b."""
        return (1 << self.nb) - 1 if self.y.one else 1 << b

    def ahead(self, s, y, i):
        """Is y before i in the lines of their process?"""
        if self.r.local == "store" and y in s.order and i in s.order:
            return s.order.index(y) < s.order.index(i)
        return s.begin.index(y) < s.begin.index(i)

    def enter(self, s, i):
        """The place of a newcomer in the true order: who has a higher priority goes before those who have not aged."""
        at = len(s.begin)
        if self.slot(s, i).priority:
            while at and not self.slot(s, s.begin[at - 1]).priority and not s.aged >> s.begin[at - 1] & 1:
                at -= 1
        return s._replace(begin=s.begin[:at] + (i,) + s.begin[at:])

    def arrival(self, s, i):
        """The states after i's arrival was set by a refusal."""
        if i in s.order:
            return [s]
        at = sum(1 for x in s.order if self.before(s, x, i))
        out = [s._replace(order=s.order[:at] + (i,) + s.order[at:])]
        if self.r.jitter and at < len(s.order):
            out.append(s._replace(order=s.order[:at + 1] + (i,) + s.order[at + 1:]))
        return out

    def forget(self, s, i):
        """Slot i waits no more, and leaves nothing behind."""
        for b, x in enumerate(s.whose):
            if x == i:
                s = s._replace(passed=put(s.passed, b, 0), whose=put(s.whose, b, -1))
        return s._replace(begin=tuple(x for x in s.begin if x != i), order=tuple(x for x in s.order if x != i), tickets=put(s.tickets, i, 0),
                          asleep=put(s.asleep, i, 0), slept=put(s.slept, i, 0), line=put(s.line, i, -1) if i < self.n else s.line, aged=s.aged & ~(1 << i))

    def grant(self, s, i, passing):
        slot = self.y.slots[i]
        t = s
        for b in range(self.nb):
            m = slot.need[b]
            t = t._replace(used=put(t.used, b, t.used[b] + m))
            if b in passing and self.r.claim != "total":
                t = t._replace(past=put(t.past, b, t.past[b] + m))
            if self.r.claim == "code":
                if b in passing:
                    kept = max(self.y.limits[b]) - min(self.y.limits[b])  # more of them make no difference
                    t = t._replace(passed=put(t.passed, b, min(kept, self.past_first(s, b) + m)), whose=put(t.whose, b, self.lower(s, b)))
            elif passing.get(b) == "total":
                t = t._replace(passed=put(t.passed, b, t.passed[b] + m))
        for b in range(self.nb):
            assert not slot.need[b] or t.used[b] <= self.y.limits[b][slot.priority], "over"
        if i not in s.begin:
            return [self.settle(s, t)]
        line = s.line[i]
        if self.r.place == "code":
            return [self.settle(s, self.forget(u, i)) for u in self.leave(t, i, -1)]
        t = self.settle(s, self.forget(t, i))
        if self.r.names and line >= 0:
            return self.name(t, slot.process, line, -1)
        if not self.r.next or line < 0:
            return [t]
        behind = [x for x in t.begin if x < self.n and self.y.slots[x].process == slot.process and t.line[x] == line]
        if not behind or t.tickets[behind[0]]:
            return [t]
        return [u._replace(tickets=put(u.tickets, behind[0], 1 << line)) for u in self.arrival(t, behind[0])]

    def name(self, s, process, b, last):
        """The states after the tickets of those in the line of bucket b were left that stand behind last (a slot, or -1: of all)."""
        line = [x for x in s.begin if x < self.n and self.y.slots[x].process == process and s.line[x] == b]
        line.sort(key=lambda x: (s.order.index(x) if x in s.order else 99, s.begin.index(x)) if self.r.local == "store" else s.begin.index(x))
        line = line[line.index(last) + 1:] if last in line else line
        out = [(s, last)]
        for x in line[:self.r.names]:
            more = []
            for t, before in out:
                for u in self.arrival(t, x):
                    if self.r.sorted and before in u.order and u.order.index(x) < u.order.index(before):
                        order = tuple(z for z in u.order if z != x)
                        at = order.index(before) + 1
                        u = u._replace(order=order[:at] + (x,) + order[at:])
                    more.append((u._replace(tickets=put(u.tickets, x, u.tickets[x] | 1 << b)), x))
            out = more
        return [t for t, _ in out]

    def named(self, s, i):
        """Who stands behind slot i in the line of its process, and is named by it."""
        line = [x for x in s.begin if x < self.n and self.y.slots[x].process == self.y.slots[i].process and 0 <= s.line[x] == s.line[i]]
        return [x for x in line if x != i and self.ahead(s, i, x)][:self.r.names]

    def leave(self, s, i, claimed):
        """The states after those whom i names have tickets, for the limits in claimed, in the line in which they wait."""
        for x in self.named(s, i):
            mine = self.together(s.line[i])
            claims = mine & claimed & sum(1 << b for b in range(self.nb) if self.y.slots[x].need[b])
            s = s._replace(tickets=put(s.tickets, x, s.tickets[x] & ~mine | claims))
            if claims:
                s, = self.arrival(s, x)
        return [s]

    def behind(self, s, i):
        """The lines in which others of its process stand before i, of the buckets that it needs."""
        slots, limits = self.y.slots, self.y.limits
        less = lambda x: self.r.fronts and limits[s.line[x]][slots[x].priority] < limits[s.line[x]][slots[i].priority]
        return [s.line[x] for x in s.begin if x < self.n and x != i and s.line[x] >= 0 and slots[i].need[s.line[x]]
                and slots[x].process == slots[i].process and self.ahead(s, x, i) and not less(x)]

    def reserve(self, s, i):
        """The states after slot i asked the first of two servers."""
        slot, f = self.y.slots[i], 1 if self.r.servers == "window" else 0
        if not self.fits(s, i, f, slot.need[f], slot.priority)[0]:
            had = s.tickets[i] >> f & 1
            tickets = put(s.tickets, i, s.tickets[i] & ~(1 << f))
            return [s._replace(used=put(s.used, f, s.used[f] + slot.need[f]), part=s.part | 1 << i, had=s.had | had << i, tickets=tickets)]
        return [u._replace(tickets=put(u.tickets, i, u.tickets[i] & -1 << f | 1 << f)) for u in self.arrival(s._replace(line=put(s.line, i, f)), i)]

    def second(self, s, i):
        """The states after slot i, which has reserved the first one, asked the second of two servers."""
        slot, f = self.y.slots[i], 1 if self.r.servers == "window" else 0
        g, had = 1 - f, s.had >> i & 1 if self.r.put_back else 0
        t = s._replace(used=put(s.used, f, s.used[f] - slot.need[f]), part=s.part & ~(1 << i), had=s.had & ~(1 << i))
        if not self.fits(s, i, g, slot.need[g], slot.priority)[0]:
            return self.grant(t, i, {})
        mask = (t.tickets[i] | had << f) & -1 << g | 1 << g
        return [u._replace(tickets=put(u.tickets, i, mask)) for u in self.arrival(t._replace(line=put(t.line, i, g)), i)]

    def ask(self, s, i):
        """The states after slot i's turn; none if it is not in front."""
        slot = self.y.slots[i]
        mine = [b for b in range(self.nb) if slot.need[b]]
        if s.part >> i & 1:
            return self.second(s, i)
        if slot.kind == "waits":
            lines = self.behind(s, i)
            if s.line[i] in lines:
                return []
            if lines:
                return [s._replace(line=put(s.line, i, lines[0]))]
        if self.r.servers and len(mine) == 2:
            return self.reserve(s, i)
        answers = {b: self.fits(s, i, b, slot.need[b], slot.priority) for b in mine}
        refusing = [b for b in mine if answers[b][0]]
        if not refusing:
            return self.grant(s, i, {b: answers[b][1] for b in mine if answers[b][1]})
        if slot.kind != "waits":
            return [s]
        slow = [b for b in refusing if b in self.y.slow and answers[b][0] == "full"]
        out = []
        paused = self.r.pause and answers.get(0) == ("paused", "")
        for c in [0] if paused else [max(refusing)] if self.r.place in ("order", "code") else slow or refusing:  # the one that refuses longest
            t = s._replace(line=put(s.line, i, c))
            if not self.r.tickets:
                out.append(t)
                continue
            mask, kept = sum(1 << b for b in refusing) if self.r.place == "each" else 1 << c, s.tickets[i]
            if self.r.place == "order":
                kept &= 0 if paused else -1 << c
            if self.r.place == "code":
                claimed = 0 if paused else sum(1 << b for b in mine if b >= c)
                for u in self.arrival(s, i):
                    u = u._replace(tickets=put(u.tickets, i, claimed))
                    out += [v._replace(line=t.line) for v in self.leave(u, i, claimed)]
                continue
            asleep = 0
            if self.r.sleep and slow:
                asleep = sum(1 << b for b in mine if b != c)
                if self.r.sleep == "once":
                    asleep &= ~s.slept[i]
            woken = s.asleep[i] & ~asleep
            for u in self.arrival(t, i):
                u = u._replace(tickets=put(u.tickets, i, kept | mask), asleep=put(u.asleep, i, asleep),
                               slept=put(u.slept, i, u.slept[i] | woken if self.r.sleep == "once" else 0))
                out += self.name(u, slot.process, c, i) if self.r.names and not paused else [u]
        return [self.settle(s, t) for t in out]

    def steps(self, s):
        """What may happen: (action, fair, next state)."""
        y, r, n = self.y, self.r, self.n
        for i, slot in enumerate(y.slots):
            if slot.kind in ("polls", "ignores"):
                if slot.kind == "ignores" and y.old >= 0:
                    for t in self.ask(s, i) if s.old else ():
                        if t != s:
                            yield ("ask", i), False, t._replace(old=s.old - 1)
                    continue
                for t in self.ask(s, i):
                    yield ("ask", i), False, t
                continue
            if i not in s.begin:
                if slot.kind == "waits":
                    yield ("comes", i), False, self.enter(s, i)
                continue
            if slot.kind == "silent":
                continue
            for t in self.ask(s, i):
                yield ("ask", i), True, t
            if s.gone and s.tickets[i] and s.ghost < 0 and not s.part >> i & 1:
                swap = lambda t: tuple(n if x == i else x for x in t)
                t = s._replace(begin=swap(s.begin), order=swap(s.order), tickets=put(put(s.tickets, n, s.tickets[i]), i, 0),
                               asleep=put(put(s.asleep, n, s.asleep[i]), i, 0), slept=put(s.slept, i, 0), line=put(s.line, i, -1),
                               ghost=i, gone=s.gone - 1, aged=s.aged & ~(1 << i), whose=swap(s.whose))
                yield ("goes", i), False, t
            named = 1 << s.line[i] if r.names and s.line[i] >= 0 else 0  # by who is in front there
            if r.front and s.tickets[i] & ~named and self.behind(s, i):
                yield ("not renewed", i), True, self.settle(s, s._replace(tickets=put(s.tickets, i, s.tickets[i] & named),
                                                                          asleep=put(s.asleep, i, 0)))
            if r.expiry and s.tickets[i]:
                t = s._replace(tickets=put(s.tickets, i, 0), asleep=put(s.asleep, i, 0))
                if r.expiry == "lost":
                    rest = tuple(x for x in s.begin if x != i)
                    t = t._replace(order=tuple(x for x in s.order if x != i), begin=rest + (i,))
                yield ("ends", i), False, self.settle(s, t)
            if self.priorities and not slot.priority and not s.aged >> i & 1:
                yield ("ages", i), True, s._replace(aged=s.aged | 1 << i)
        if s.ghost >= 0 and r.renewed == "named":
            yield ("ghost ends",), True, self.settle(s, self.forget(s, n))._replace(ghost=-1)
        yield from self.units(s)
        if s.pauses and not s.paused:
            yield ("pause",), False, s._replace(paused=True, pauses=s.pauses - 1)
        if s.paused:
            yield ("pause ends",), "pause" not in y.unfair, s._replace(paused=False)
        if y.lease:
            yield from self.leases(s)

    def units(self, s):
        """Which units may come back."""
        y, r, n = self.y, self.r, self.n
        for b in range(self.nb):
            fair = b not in y.unfair
            if b in y.calendar:
                if s.used[b] > self.held[b]:
                    yield ("window ends", b), fair, s._replace(used=put(s.used, b, self.held[b]), past=put(s.past, b, 0))
                continue
            apart = s.lease if b == 0 else 0
            if b == (1 if r.servers == "window" else 0):
                apart += sum(y.slots[i].need[b] for i in range(n) if s.part >> i & 1)
            if s.used[b] - s.past[b] - apart > self.held[b]:
                yield ("unit back", b), fair, s._replace(used=put(s.used, b, s.used[b] - 1))
            if s.past[b]:
                t = s._replace(used=put(s.used, b, s.used[b] - 1), past=put(s.past, b, s.past[b] - 1))
                yield ("passed unit back", b), fair, t if r.settled else t._replace(late=put(s.late, b, s.late[b] + 1))
            if not r.settled and s.late[b]:
                yield ("hold ends", b), False, s._replace(late=put(s.late, b, s.late[b] - 1))

    def leases(self, s):
        k = self.y.lease
        wait = any(t & 1 for t in s.tickets)
        if not s.lease and (not self.r.beside and s.used[0] + k <= self.y.limits[0][0] or self.r.beside and not self.fits(s, self.n + 1, 0, k, 0)[0]):
            yield ("lease",), False, s._replace(used=put(s.used, 0, s.used[0] + k), lease=k, told=False)
        if s.lease:
            if not s.told:
                yield ("spent here",), False, s._replace(lease=s.lease - 1)
                yield ("renewed",), True, s._replace(told=self.r.told and wait)
            else:
                yield ("returned",), True, s._replace(used=put(s.used, 0, s.used[0] - s.lease), lease=0, told=False)


def explore(model, most=400_000):
    """All states, and for each one its steps as (action, fair, number of the next state)."""
    states, numbers, edges, k = [model.first()], {model.first(): 0}, [], 0
    while k < len(states):
        out = []
        for action, fair, t in model.steps(states[k]):
            j = numbers.get(t)
            if j is None:
                j = numbers[t] = len(states)
                states.append(t)
            out.append((action, fair, j))
        edges.append(out)
        k += 1
        if k > most:
            raise MemoryError("too many states")
    return states, edges


def components(nodes, edges):
    """Tarjan's strongly connected components, without recursion."""
    index, low, on, stack, out = {}, {}, set(), [], []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            v, it = work[-1]
            for _, _, w in it:
                if w not in nodes:
                    continue
                if w not in index:
                    index[w] = low[w] = len(index)
                    stack.append(w)
                    on.add(w)
                    work.append((w, iter(edges[w])))
                    break
                if w in on:
                    low[v] = min(low[v], index[w])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[v])
                if low[v] == index[v]:
                    part = []
                    while True:
                        w = stack.pop()
                        on.discard(w)
                        part.append(w)
                        if w == v:
                            break
                    out.append(part)
    return out


def starves(model, states, edges, victim, room=""):
    """A component in which victim waits for ever although all is fair, as (its states, the actions in it); None if there is none. room:
    yes: although its units are there all the time; no: and its units are never there, so asking more often would not help."""
    need, y = model.y.slots[victim].need, model.y
    there = lambda s: all(s.used[b] + m <= y.limits[b][y.slots[victim].priority] for b, m in enumerate(need))
    nodes = {k for k, s in enumerate(states) if victim in s.begin and (not room or there(s) == (room == "yes"))}
    for part in components(nodes, edges):
        inside, always, taken = set(part), None, set()
        for v in part:
            fair = {a for a, f, _ in edges[v] if f}
            always = fair if always is None else always & fair
            taken |= {a for a, _, w in edges[v] if w in inside}
        if taken and not always - taken:
            return part, taken
    return None


def overtaken(model, victim, since, most=4):
    """How often others of its priority that began later are granted while victim waits; most: that often or more. since: ticket: only while
    a ticket of victim lies in each bucket that both use; line: since it stands in a line of its process."""
    todo, done, best = [(model.first(), 0)], {(model.first(), 0)}, 0
    while todo:
        s, count = todo.pop()
        for action, _, t in model.steps(s):
            c = count
            if victim not in t.begin or victim not in s.begin:
                c = 0
            elif action[0] == "ask" and action[1] != victim and t.used != s.used:
                other, me = model.y.slots[action[1]], model.y.slots[victim]
                later = action[1] not in s.begin or s.begin.index(action[1]) > s.begin.index(victim)
                shared = [b for b in range(model.nb) if other.need[b] and me.need[b]]
                if later and shared and other.priority == me.priority and (
                        s.line[victim] >= 0 if since == "line" else all(s.tickets[victim] >> b & 1 for b in shared)):
                    c = min(most, c + 1)
            best = max(best, c)
            if best == most:
                return best
            if (t, c) not in done:
                done.add((t, c))
                todo.append((t, c))
    return best


wrong = 0


def report(ok, text):
    global wrong
    wrong += not ok
    print(f"{'ok' if ok else 'MISMATCH'} {text}", flush=True)


def live(expected, name, system, victims, room="", slow=False, **rules):
    """Nobody of victims waits for ever (room: see starves), and nothing is over. slow: not with --quick."""
    if slow and quick:
        return
    model = Model(system, Rules(**rules))
    try:
        states, edges = explore(model)
        how = None
        for v in victims:
            how = how or starves(model, states, edges, v, room)
        got, n = "V" if how else "H", len(states)
        text = f"; the loop, of {len(how[0])}: {', '.join(sorted(' '.join(map(str, a)) for a in how[1]))}" if how else ""
    except AssertionError as e:
        got, n, text = "V", 0, f"; {e}"
    except MemoryError as e:
        got, n, text = "?", 0, f"; {e}"
    report(got == expected, f"expected={expected} got={got} {name} ({n} states){text}")


def count(expected, name, system, victim, since, **rules):
    got = overtaken(Model(system, Rules(**rules)), victim, since)
    report(got == expected, f"expected={expected} got={got} {name}")


quick = "--quick" in sys.argv
only = [a for a in sys.argv[1:] if not a.startswith("-")]


def part(name):
    """Is this part to run?"""
    if __name__ != "__main__":  # histories.py has imported this
        return False
    if only and name not in only or quick and name not in ("several who stand behind are named", "calendar windows"):
        return False
    print(name, flush=True)
    return True


one = ((2, 2),)  # one bucket, of two units, nothing kept
W = Slot
if part("several waiters in a process, one bucket"):
    y = System(one, (W(0, (2,)), W(0, (1,)), W(1, (1,)), W(1, (1,))))
    live("H", "a large take and small ones", y, range(4))
    live("V", "no tickets: the large take starves", y, (0,), tickets=False)
    live("H", "the same, with a caller that polls", y._replace(slots=y.slots + (W(2, (1,), 0, "polls"),)), range(4))
    live("H", "a process dies, or a withdrawal is lost, twice", y._replace(gone=2), range(4), slow=True)
    live("V", "its ticket is renewed with the others of its process", y._replace(gone=1), range(4), renewed="process")
    live("H", "the next waiter's ticket is left with the grant", y, range(4), next=True)
    live("V", "tickets end between two tries: the large take", y, (0,), expiry="arrival")
    live("V", "tickets end between two tries: small takes", y, (1, 2, 3), expiry="arrival")
    live("V", "tickets end between two tries, and the arrival is lost", y, (1, 2, 3), expiry="lost")

if part("order"):
    y = System(((1, 1),), (W(0, (1,)), W(0, (1,)), W(1, (1,)), W(1, (1,))))
    count(0, "grants that overtake a waiter whose ticket lies there", y, 1, "ticket")
    count(3, "the same, if the arrival is the instant of the first refusal", y, 1, "ticket", back=False)
    count(4, "grants that overtake a waiter in the line of its process (4: no bound but the time until it asks)", y, 1, "line")
    count(0, "the same, if the next waiter's ticket is left with the grant", y, 1, "line", next=True)
    y = System(one, (W(0, (2,)), W(0, (2,), 1), W(1, (1,)), W(1, (1,))))
    live("H", "an arrival may be later than it is by the process's own clock", y, range(4), jitter=True, slow=True)
    live("V", "a process orders its waiters by its own clock: each of two waits for the other", y, range(4), jitter=True, front=False, local="own")
    live("H", "the same, but only tickets of who is in front are renewed", y, range(4), jitter=True, local="own", slow=True)
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (0, 1)), W(1, (1, 0))))
    live("H", "late arrivals, two buckets, one priority", y, range(4), jitter=True)
    live("V", "a process orders its waiters by its own clock", y, range(4), jitter=True, front=False, local="own")
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (0, 1)), W(1, (1, 1))))
    count(0, "two buckets: grants that overtake a waiter whose tickets lie in all that both use", y, 0, "ticket")
    y = System(one, (W(0, (2,)), W(0, (1,)), W(1, (1,)), W(1, (2,))))
    count(0, "grants that overtake a large take whose ticket lies there", y, 0, "ticket")

if part("several who stand behind are named"):
    three = System(one, (W(0, (1,)), W(0, (1,)), W(0, (2,)), W(1, (1,))))
    for y in (System(one, (W(0, (2,)), W(0, (1,)), W(1, (1,)), W(1, (1,)))), three, three._replace(gone=1)):
        live("H", "a large take and small ones", y, range(4), names=2, slow=y.gone > 0)
    y = System(one, (W(0, (1,)), W(0, (2,)), W(1, (1,)), W(1, (2,))))
    live("V", "requests take their time: named ones stand where they say", y, range(4), names=2, jitter=True, local="own", sorted=False)
    live("H", "the same, and named ones stand behind who names them", y, range(4), names=2, jitter=True, local="own", slow=True)
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (0, 1)), W(1, (1, 0))))
    live("H", "two limits", y, range(4), names=1)
    far = y._replace(slow=(1,), unfair=(1,))
    live("H", "the second one refuses for long: takes of the first one", far, (1, 3), names=1)
    live("H", "the same, behind others in the line of the second one", far._replace(
        slots=(W(0, (1, 1)), W(0, (0, 1)), W(1, (1, 1)), W(1, (1, 0)))), (3,), names=2)
    y = System(((2, 3),), (W(0, (2,)), W(0, (1,), 1), W(1, (1,)), W(1, (1,), 1)))
    live("H", "several waiters of both priorities in a process", y, range(4), names=1)

if part("two limits, of one bucket or of two"):
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (0, 1)), W(1, (1, 0))))
    far = y._replace(slow=(1,), unfair=(1,))
    both = far._replace(slow=(0, 1), unfair=())
    live("H", "a take that needs both, and takes of each", y, range(4))
    live("H", "the same, polled too, a process dies", y._replace(slots=y.slots[:3] + (W(2, (1, 0), 0, "polls"),), gone=1), range(3))
    live("H", "the second one refuses for long: takes of the first one", far, (1, 3))
    behind = far._replace(slots=(W(0, (1, 1)), W(0, (0, 1)), W(1, (1, 1)), W(1, (1, 0))))
    live("H", "the same, behind others in the line of the second one", behind, (3,))
    live("V", "tickets of who stands behind others are renewed, too", behind, (3,), front=False)
    live("V", "the first one refuses for long: takes of the second one, behind one that needs both", both._replace(unfair=(0,)), (2,))
    live("H", "more that need both", y._replace(slots=(W(0, (1, 1)), W(0, (0, 1)), W(1, (1, 1)), W(1, (1, 0)))), range(4))
    live("H", "two units of each", System(one * 2, (W(0, (2, 2)), W(0, (1, 0)), W(1, (1, 1)), W(1, (0, 1)))), range(4), slow=True)
    live("H", "a ticket in each that refuses", y, range(4), place="each")
    live("V", "a ticket in each that refuses, the second one for long: takes of the first one wait for it", far, (1, 3), place="each")
    live("V", "the same, with a ticket only where a take was refused longest", far, (1, 3), place="longest")
    live("H", "a ticket in each, without claims while another one refuses for long", far, (1, 3), place="each", sleep="again")
    live("V", "the same, and both do: who needs both", both, (0,), place="each", sleep="again")
    live("H", "the same, once per limit", both, range(4), place="each", sleep="once")
    live("V", "the same, and the second one refuses for ever: takes of the first one", far, (1, 3), place="each", sleep="once")

if part("pauses"):
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (0, 1)), W(1, (1, 1))), pauses=2)
    live("H", "the first one is paused, twice", y, range(4), slow=True)
    y = y._replace(pauses=1, unfair=("pause",))
    live("H", "it is paused for ever: takes of the second one", y, (2,))
    live("V", "they wait for what those claim that the pause refuses", y, (2,), pause=False)
    live("V", "they wait for what those claim that stand behind others in the line of what is paused", y, (2,), front=False)

if part("two servers"):
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (1, 1)), W(1, (0, 1))))
    for servers in ("window", "key"):
        live("H", f"reserved in the order of {servers}; clocks differ", y, range(4), servers=servers, jitter=True, slow=True)
    live("V", "a process orders its waiters by its own clock", y, range(4), servers="window", jitter=True, local="own", slow=True)
    live("V", "reserved in the order of window; the cancel does not put the ticket back", y, range(4), servers="window", put_back=False)
    live("H", "a process dies", y._replace(slots=y.slots[:1] + y.slots[2:], gone=1), range(3), servers="window")

if part("priorities and kept shares"):
    # Low may use 2 of 3 units; a unit is kept for high.
    keep = ((2, 3),)
    high = (W(1, (1,), 1), W(2, (1,), 1), W(3, (1,), 1))
    for need, size in ((1, "small"), (2, "large")):
        y = System(keep, (W(0, (need,)),) + high)
        for rule, low in (("room", "V"), ("all", "V"), ("zone", "V"), ("own", "H"), ("total", "H"), ("race", "V"), ("use", "H"), ("kept", "H")):
            live(low, f"claim {rule}: a {size} take of low priority that has waited long", y, (0,), claim=rule)
        for rule in ("room", "zone"):
            live("V", f"claim {rule}: it never has its units", y, (0,), room="no", claim=rule)
    # Two units are kept: those who pass can be so many at once that the lower one never has the limit for itself.
    y = System(((3, 5),), (W(0, (3,)),) + high)
    for rule, low in (("use", "V"), ("kept", "H")):
        live(low, f"claim {rule}: a take of all that low priority may use, two units kept", y, (0,), claim=rule)
    live("H", "claim kept: one of a third of it, and one of two thirds", System(((3, 5),), (W(0, (1,)), W(4, (2,))) + high[:2]), range(4))
    # The two units that low may use are held.
    y = System(keep, (W(0, (1,)), W(1, (1,), 1)), held=(2,))
    for rule, verdict in (("room", "H"), ("all", "V"), ("zone", "H"), ("own", "V"), ("total", "V"), ("use", "H"), ("kept", "H")):
        live(verdict, f"claim {rule}: a take of high priority behind an old ticket of low priority that has no room", y, (1,), claim=rule)
    live("V", "what passed counts until its hold would have ended, although it was settled", y, (1,), settled=False)
    y = System(keep, (W(0, (1,)), W(0, (1,), 1)), held=(2,))
    live("H", "both in one process", y, (1,))
    live("V", "the one of high priority stands behind the other one in the line of their process", y, (1,), fronts=False)
    y = System(keep, (W(0, (2,)), W(0, (1,), 1), W(1, (1,)), W(1, (1,), 1)))
    live("H", "several waiters of both priorities in a process", y, range(4))
    y = System(keep, (W(0, (2,)), W(0, (2,), 1), W(1, (1,)), W(1, (1,), 1)))
    live("H", "one of high priority needs more than is kept for it", y, range(4))
    y = System(((2, 2),), (W(0, (3,), 0, "silent"), W(1, (1,)), W(1, (2,))), start=(0,))
    live("H", "a ticket for more than its limit is by now", y, (1, 2))
    live("V", "it claims", y, (1, 2), never=False)

if part("calendar windows"):
    y = System(((3, 3),), (W(0, (3,)), W(0, (1,)), W(1, (1,)), W(1, (2,))), calendar=(0,))
    live("H", "a large take and small ones", y, range(4))
    y = System(((3, 3),), (W(0, (3,)), W(1, (1,)), W(2, (1,))), calendar=(0,), unfair=(0,))
    live("H", "what a large take cannot use before the window ends is used by small ones", y, (1, 2), room="yes")
    live("V", "the ticket of the large one claims it", y, (1, 2), room="yes", calendar=False)
    y = System(((2, 2), (3, 3)), (W(0, (2, 3)), W(0, (1, 1)), W(1, (1, 1)), W(1, (0, 1))), calendar=(1,))
    live("H", "a window and a shorter limit", y, range(4), slow=True)
    y = y._replace(slots=(W(0, (2, 3)), W(1, (1, 1)), W(2, (1, 1))), unfair=(1,))
    live("H", "what a large take cannot use before the window ends is used, in the shorter limit as well", y, (1, 2), room="yes")
    live("V", "a ticket in each that refuses claims the shorter limit", y, (1, 2), room="yes", place="each")

if part("all together"):
    y = System(((1, 2), (1, 1)), (W(0, (1, 1)), W(1, (1, 0), 1), W(1, (0, 1)), W(2, (1, 0), 1)))
    live("H", "two limits, one of which keeps a unit; two priorities", y, range(4), slow=True)
    y = System(((2, 2), (1, 1)), (W(0, (2, 1)), W(0, (1, 0)), W(1, (0, 1)), W(2, (1, 0), 0, "polls"), W(3, (1, 0), 0, "ignores")), gone=1, lease=1, old=1)
    live("H", "leases, polls, an older version, a death", y, range(3), slow=True)

if part("leases"):
    y = System(((3, 3),), (W(0, (3,)), W(0, (1,)), W(1, (1,))), lease=2)
    live("H", "a lease is returned when its holder learns of tickets", y, range(3))
    live("V", "it learns nothing", y, range(3), told=False)
    live("V", "leases are granted although tickets wait", y, range(3), beside=False)

if part("an older version, which sees no tickets"):
    y = System(one, (W(0, (2,)), W(0, (1,)), W(1, (1,)), W(2, (1,), 0, "ignores")))
    live("V", "it takes without end", y, range(3))
    live("H", "it takes a few times", y._replace(old=3), range(3))

if part("as the code has it"):
    code = {"place": "code", "claim": "code", "names": 1}
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (0, 1)), W(1, (1, 0))))
    far = y._replace(slow=(1,), unfair=(1,))
    for one in (False, True):
        name = "two limits of one bucket" if one else "two limits"
        live("H", name, y._replace(one=one), range(4), **code)
        live("H", f"{name}; the second one refuses for long: takes of the first one", far._replace(one=one), (1, 3), **code)
    live("H", "two units of each, several waiters behind", System(((2, 2),) * 2, (W(0, (2, 2)), W(0, (1, 0)), W(0, (0, 1)), W(1, (1, 1)))), range(4), slow=True,
         **code)
    y = System(((1, 1), (1, 1)), (W(0, (1, 1)), W(0, (1, 0)), W(1, (0, 1)), W(1, (1, 1))), pauses=2)
    live("H", "the first one is paused, twice", y, range(4), slow=True, **code)
    live("H", "it is paused for ever: takes of the second one", y._replace(pauses=1, unfair=("pause",)), (2,), **code)
    high = (W(1, (1,), 1), W(2, (1,), 1), W(3, (1,), 1))
    for need, size in ((1, "small"), (2, "large")):
        live("H", f"a unit is kept: a {size} take of low priority that has waited long", System(((2, 3),), (W(0, (need,)),) + high), (0,), **code)
    live("H", "a take of all that low priority may use, two units kept", System(((3, 5),), (W(0, (3,)),) + high), (0,), **code)
    live("H", "one of a third of it, and one of two thirds", System(((3, 5),), (W(0, (1,)), W(4, (2,))) + high[:2]), range(4), slow=True, **code)
    live("H", "a take of high priority behind an old ticket of low priority that has no room",
         System(((2, 3),), (W(0, (1,)), W(1, (1,), 1)), held=(2,)), (1,), **code)
    live("V", "what passed counts until its hold would have ended, although it was settled",
         System(((2, 3),), (W(0, (1,)), W(1, (1,), 1)), held=(2,)), (1,), settled=False, **code)
    live("H", "several waiters of both priorities in a process", System(((2, 3),), (W(0, (2,)), W(0, (1,), 1), W(1, (1,)), W(1, (1,), 1))), range(4), **code)
    live("H", "two limits, one of which keeps a unit; two priorities",
         System(((1, 2), (1, 1)), (W(0, (1, 1)), W(1, (1, 0), 1), W(1, (0, 1)), W(2, (1, 0), 1))), range(4), slow=True, **code)
    y = System(((2, 2), (3, 3)), (W(0, (2, 3)), W(1, (1, 1)), W(2, (1, 1))), calendar=(1,), unfair=(1,))
    live("H", "what a large take cannot use before the window ends is used, in the shorter limit as well", y, (1, 2), room="yes", **code)
    y = System(((2, 2), (1, 1)), (W(0, (2, 1)), W(0, (1, 0)), W(1, (0, 1)), W(2, (1, 0), 0, "polls"), W(3, (1, 0), 0, "ignores")), gone=1, lease=1, old=1)
    live("H", "leases, polls, an older version, a death", y, range(3), slow=True, **code)

if __name__ == "__main__":
    print("ALL AS EXPECTED" if not wrong else f"{wrong} NOT AS EXPECTED")
    sys.exit(wrong > 0)
