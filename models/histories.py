#!/usr/bin/env python3
"""histories.py N SEED - random histories of line.py, for the code to make as well.

Prints N histories of small random systems, each as a line of JSON: the system, and what happened, with who stands in line, who has a ticket
where, and what is used afterwards. History k is drawn by SEED + k. histories_test.go repeats each one with internal/record.

Each history is a path through the transitions of Model in line.py, with the rules as the code has them. The model counts no time, so the
path is one that a clock can make: units come back when they do by the kind of their limit, those of slots when their take ends.
"""
import json
import random
import sys
from functools import cache

from line import Model, Rules, Slot, System

HOUR = 3600
EVENTS = 30
# How often what is chosen, where it is possible.
WEIGHTS = {"ask": 4, "comes": 2, "ages": 1, "goes": 0.5, "ghost ends": 1, "not renewed": 1, "ends": 0.3, "pause": 0.5, "pause ends": 1,
           "spent here": 2, "renewed": 1, "returned": 2, "take ends": 2, "lease": 1}


@cache
def model(system, rules):
    return Model(system, rules)


class Walk:
    def __init__(self, seed):
        self.seed, self.r = seed, random.Random(seed)
        self.at = 1_790_812_800 + self.r.randrange(HOUR)  # s
        self.draw()
        self.model = Model(self.system, self.rules)
        self.s = self.model.first()
        self.start, self.events = self.at, []
        self.parts = [[] for _ in self.kinds]  # per limit: what was granted, and when it comes back
        self.level = [0] * len(self.kinds)  # of a bucket: one unit is as much as drains in a window
        self.takes, self.spent, self.leased, self.paused = [], 0, 0, None

    def draw(self):
        """A random system."""
        r = self.r
        self.kinds = [r.choice(("slots", "slots", "rolling", "bucket", "calendar")) for _ in range(r.choice((1, 2, 2)))]
        window = {"slots": lambda: 0, "calendar": lambda: HOUR}
        both = [(window.get(k, lambda: r.randrange(1000, 9000))(), k) for k in self.kinds]
        both.sort(key=lambda x: x[0])  # limit 1 is the longer one
        self.windows, self.kinds = [w for w, _ in both], [k for _, k in both]
        nb, self.high = len(both), r.randrange(1, 8)
        priorities = r.random() < 0.6
        self.late = [k == "rolling" and r.random() < 0.4 for k in self.kinds]  # charged at the end: units of a take that is held do not age
        low = [r.randrange(1, 4) for _ in both]
        limits = tuple((n, n + r.choice((0, 1, 1, 2)) if priorities else n) for n in low)
        slots = tuple(self.slot(limits, priorities) for _ in range(r.randrange(3, 6)))
        start = ()
        if r.random() < 0.2:
            need = tuple(r.randrange(low[b] + 2) for b in range(nb))
            if any(need):
                slots, start = slots + (Slot(3, need, 0, "silent"),), (len(slots),)
        held = tuple(r.choice((0, 0, 0, n)) if k == "slots" else 0 for n, k in zip(low, self.kinds))
        one = nb == 2 and r.random() < 0.4
        self.rules = Rules(place="code", claim="code", names=r.randrange(3), expiry=r.choice(("", "", "arrival", "lost")))
        self.system = System(limits, slots, calendar=tuple(b for b, k in enumerate(self.kinds) if k == "calendar"), held=held, start=start,
                             gone=r.randrange(4), pauses=0 if one else r.choice((0, 0, 1, 2)), one=one,
                             lease=r.choice((0, 2, 3)) if self.kinds[0] in ("rolling", "bucket") else 0)

    def slot(self, limits, priorities):
        r, priority = self.r, int(priorities and self.r.random() < 0.5)
        while True:
            # Of a bucket those of higher priority take one unit: the code counts all that passed in one take until the last of it has drained.
            need = tuple(r.randrange(min(m[priority], 1 if priority and k == "bucket" else 9) + 1) for m, k in zip(limits, self.kinds))
            if any(need):
                return Slot(r.randrange(3), need, priority, r.choice(("waits",) * 6 + ("polls", "ignores")))

    def move(self, t):
        self.s = t
        for b, parts in enumerate(self.parts):
            if not t.past[b]:  # an empty line is forgotten
                for p in parts:
                    p["past"] = False

    def back(self, b, past, n=1):
        """n units of limit b come back."""
        action = ("passed unit back" if past else "unit back", b)
        for _ in range(n):
            self.move(next(t for a, _, t in self.model.units(self.s) if a == action))

    def tick(self):
        """The clock goes on: what is over by then comes back."""
        was, self.at = self.at, self.at + self.r.randrange(300, 1500)
        for b, kind in enumerate(self.kinds):
            if kind == "calendar" and was // HOUR != self.at // HOUR and self.s.used[b]:
                self.move(next(t for a, _, t in self.model.units(self.s) if a == ("window ends", b)))
            over = [p for p in self.parts[b] if p["until"] and p["until"] <= self.at]
            self.parts[b] = [p for p in self.parts[b] if p not in over]
            if kind == "rolling":
                for p in over:
                    self.back(b, p["past"], p["n"])
            elif kind == "bucket":
                level = max(0, self.level[b] - self.at + was)
                drained = -(-self.level[b] // self.windows[b]) + -level // self.windows[b]
                past = sum(p["past"] for p in over)
                self.back(b, True, past)
                self.back(b, False, drained - past)
                self.level[b] = level

    def count(self, b, n, past=False, take=None, held=False):
        """n units of limit b count from now on; held: they belong to a take that is held."""
        until = 0
        if self.kinds[b] == "rolling" and not (held and self.late[b]):
            until = self.at + self.windows[b]
        if self.kinds[b] == "bucket":
            self.level[b] += n * self.windows[b]
            until = self.at + self.level[b]
        self.parts[b].append({"n": n, "past": past, "until": until, "take": take})

    def emit(self, do, **what):
        s = self.s
        e = {"at": self.at, "do": do, **what, "order": s.order, "tickets": s.tickets, "used": s.used, "past": s.past,
             "first": [self.model.past_first(s, b) for b in range(len(self.kinds))]}
        self.events.append(e)
        return e

    def outcome(self, answers):
        why = {a for a, _ in answers.values()}
        return next((w for w in ("paused", "full", "queued") if w in why), "granted")

    def ask(self, i, t):
        s, m, slot = self.s, self.model, self.system.slots[i]
        waits = slot.kind == "waits"
        if waits and m.behind(s, i):  # it goes to another line of its process
            self.move(t)
            return
        answers = {b: m.fits(s, i, b, n, slot.priority) for b, n in enumerate(slot.need) if n}
        out, places = self.outcome(answers), self.places(i) if waits else {}
        self.move(t)
        e = self.emit("ask", slot=i, out=out, refused=[b for b in answers if answers[b][0]], take=len(self.takes), **places)
        if out != "granted":
            return
        past = {b for b in answers if answers[b][1] and t.past[b]}
        held = any(self.kinds[b] == "slots" for b in answers)
        for b in answers:
            self.count(b, slot.need[b], b in past, len(self.takes), held)
        self.takes.append({"event": e, "need": slot.need, "open": held})

    def places(self, i):
        """Where the waiter i, and those whom it names, come among those in line, and -1 for who is known there."""
        s, m = self.s, self.model
        line, where = list(s.order), []
        for x in [i] + m.named(s, i):
            where.append([x, -1 if x in line else sum(m.before(s, y, x) for y in line)])
            if x not in line:
                line.insert(where[-1][1], x)
        return {"place": where[0][1], "next": where[1:], "line": s.line[i]}

    def end(self, k):
        """A take that holds slots ends: settled, cancelled, or because its time is over."""
        take, r = self.takes[k], self.r
        take["open"], actual = False, [-1] * len(self.kinds)
        how = r.choice(("over", "settle", "settle", "cancel"))
        if how == "cancel" and any(n and self.kinds[b] in ("bucket", "calendar") for b, n in enumerate(take["need"])):
            how = "settle"
        for b, kind in enumerate(self.kinds):
            mine = [p for p in self.parts[b] if p["take"] == k]
            if kind == "slots" or how == "cancel":
                self.parts[b] = [p for p in self.parts[b] if p["take"] != k]
                for p in mine:
                    self.back(b, p["past"], p["n"])
                continue
            for p in mine if kind == "rolling" else ():
                if how == "settle" and r.random() < 0.5:
                    actual[b] = r.randrange(p["n"] + 1)
                    self.back(b, p["past"], p["n"] - actual[b])
                    p["n"] = actual[b]
                if self.late[b]:
                    p["until"] = self.at + self.windows[b]
        if how == "over":
            take["event"]["until"] = self.at
        self.emit(how, take=k, actual=actual)

    def lease(self):
        """A lease gets as much as fits beside tickets."""
        want, s = self.r.randrange(1, self.system.lease + 1), self.s
        for n in range(want, 0, -1):
            for _, _, t in model(self.system._replace(lease=n), self.rules).leases(s):
                self.move(t)
                self.leased, self.spent = n, 0
                self.emit("lease", want=want, out="granted", granted=n)
                return
        answers = {0: self.model.fits(s, len(self.system.slots) + 1, 0, 1, 0)}
        self.emit("lease", want=want, out=self.outcome(answers))

    def returned(self):
        if self.spent:
            self.count(0, self.spent)
        self.emit("return", spent=self.spent)

    def goes(self, i, t):
        """A waiter is gone, and takes its ticket with it or not."""
        ended = [u for a, _, u in self.model.steps(t) if a == ("ghost ends",)]
        withdraws = self.r.random() < 0.5
        self.move(ended[0] if withdraws else t)
        self.emit("withdraw" if withdraws else "dies", slot=i)

    def choose(self):
        """What happens next, and how it is afterwards."""
        some = [(a, t) for a, _, t in self.model.steps(self.s) if a[0] in WEIGHTS and a[0] != "lease"]
        some += [(("take ends", k), None) for k, take in enumerate(self.takes) if take["open"]]
        if self.system.lease and not self.s.lease:
            some.append((("lease",), None))
        return self.r.choices(some, [WEIGHTS[a[0]] for a, _ in some])[0]

    def event(self):
        action, t = self.choose()
        what, i = action[0], action[1] if len(action) > 1 else -1
        if what == "ask":
            self.ask(i, t)
        elif what == "take ends":
            self.end(i)
        elif what == "lease":
            self.lease()
        elif what == "goes":
            self.goes(i, t)
        elif what in ("not renewed", "ends"):
            both = len(self.kinds) == 2 and self.system.one
            if not both or t.tickets[i] == 0:  # a ticket in one bucket ends as a whole
                self.move(t)
                self.emit("expire", slot=i)
        elif what == "ghost ends":
            self.move(t)
            self.emit("expire", slot=len(self.system.slots))
        elif what == "pause":
            self.move(t)
            self.paused = self.emit("pause")
        elif what == "pause ends":
            self.move(t)
            if self.r.random() < 0.5:
                self.paused["until"] = self.at
                self.emit("over")
            else:
                self.emit("unpause")
        elif what == "spent here":
            self.move(t)
            self.spent += 1
            if not t.lease:
                self.returned()
        elif what == "returned":
            self.move(t)
            self.returned()
        elif what == "renewed":
            self.move(t)
            self.emit("renew")
        else:  # comes, ages: nobody asks
            self.move(t)
            if what == "comes":
                self.emit("comes", slot=i)

    def run(self):
        while len(self.events) < EVENTS and self.at < self.start + 200 * HOUR:
            self.tick()
            self.event()
        y = self.system
        limits = [{"kind": k, "window": w, "low": m[0], "high": m[1], "held": h, "end": end}
                  for k, w, m, h, end in zip(self.kinds, self.windows, y.limits, y.held, self.late)]
        slots = [{"need": x.need, "priority": x.priority, "kind": x.kind} for x in y.slots]
        return {"seed": self.seed, "at": self.start, "limits": limits, "high": self.high, "one": y.one, "slots": slots, "start": y.start,
                "events": self.events}


if __name__ == "__main__":
    for k in range(int(sys.argv[1])):
        print(json.dumps(Walk(int(sys.argv[2]) + k).run(), separators=(",", ":")))
