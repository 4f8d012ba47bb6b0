"""How long units, records, epochs and recovered grants live.

One record; a unit counts for two ticks, from its take or, if it was booked ahead, from the next
tick. Ticks, fail-overs, evictions; units that somebody else gives back (another process settles, an
operator adjusts down); answers that are lost, and messages that arrive late.

Checked in each state: no unit counts twice; what is charged again still counts for its process;
what was given back does not count again unless the store lost something. Checked when every process
had an answer since the last loss: each unit that counts for a living process counts in the record,
and until its end.
"""

from collections import namedtuple

from search import World, check, last_mark, noted, present

LIFE = 2
# untils: of marks whose epoch has ended, until when something written under them may count; counts:
# (unit, end); done: (grant, end)
Rec = namedtuple("Rec", "n epochs untils counts done until")
Unit = namedtuple("Unit", "uid start end stamps grant")
Proc = namedtuple("Proc", "units lost mark heard")
State = namedtuple(
    "State", "gen rec hist gens time now procs units message spared left"
)  # spared: given back, and nothing lost since


class Expiry(World):
    EVENTS = "take ahead credit tick loss evict lost late".split()

    def start(self, left):
        return State(1, None, (None,), 1, 0, 0, (Proc((), (), "any", True),) * self.procs, (), None, (), left)

    # The store.

    def record(self, s):
        """The record, unless it has expired."""
        return s.rec if s.rec and s.rec.until > s.now else None

    def epochs(self, s):
        rec = self.record(s)
        return self.trimmed(noted(rec.epochs, s.gen, rec.n), dict(rec.untils), s.now) if rec else ()

    def trimmed(self, epochs, untils, now):
        while len(epochs) > 1 and untils.get(epochs[0][0], now + 1) <= now:
            epochs = epochs[1:]
        return epochs

    def write(self, s):
        rec, instant = self.record(s), s.time + 1
        if rec is None:
            return Rec(instant, noted((), s.gen, None, instant), (), (), (), s.now), instant
        epochs, untils = noted(rec.epochs, s.gen, rec.n, instant), dict(rec.untils)
        if epochs != rec.epochs:  # one more began
            untils[rec.epochs[-1][0]] = s.now if "epochs" in self.without else rec.until
        epochs = self.trimmed(epochs, untils, s.now)
        untils = tuple((m, u) for m, u in untils.items() if m in dict(epochs))
        early = "remember" in self.without
        done = tuple((g, end) for g, end in rec.done if end - early > s.now)
        counts = tuple((u, end) for u, end in rec.counts if end > s.now)
        return rec._replace(n=instant, epochs=epochs, untils=untils, counts=counts, done=done), instant

    def saved(self, s, rec, time, until):
        rec = rec._replace(until=max(rec.until, until))
        return s._replace(rec=rec, time=time, hist=s.hist + (rec,))

    def charge(self, s, message, mark):
        """Carries out charges: the next state, the stamp of each grant (None: not carried out), and what is wrong."""
        if mark != "any" and mark != last_mark(self.epochs(s)):
            return s, None, None
        rec, time = self.write(s)
        stamp, until, fault, stamps = (last_mark(rec.epochs), rec.n), 0, None, {}
        for grant, parts in message:
            stamps[grant] = stamp
            parts = [(uid, end) for uid, end in parts if end > s.now or "end" in self.without]
            if not parts or grant in dict(rec.done):
                continue
            for uid, end in parts:
                start = s.units[uid][1]
                fault = fault or ("charged too late" if end <= s.now else None)
                ends = s.now + LIFE if "ahead" in self.without else max(s.now, start) + LIFE
                rec = rec._replace(counts=tuple(sorted(rec.counts + ((uid, ends),))))
                until = max(until, ends)
            rec = rec._replace(done=rec.done + ((grant, max(end for _, end in parts)),))
        return self.saved(s, rec, time, until), stamps, fault

    # A process.

    def hears(self, s, i):
        p, epochs = s.procs[i], self.epochs(s)
        units = tuple(u for u in p.units if u.end > s.now)
        lost = tuple(u for u in p.lost if u in [v.uid for v in units])
        if p.mark == "any" or p.mark != last_mark(epochs):
            lost = tuple(u.uid for u in units if not present(u.stamps, epochs))
            fresh = [u.uid for u in units if u.uid in lost and u.grant is None]
            units = tuple(u._replace(grant=fresh[0]) if u.uid in fresh else u for u in units)
        return self.put(s, i, Proc(units, lost, last_mark(epochs), True))

    def put(self, s, i, p):
        return s._replace(procs=s.procs[:i] + (p,) + s.procs[i + 1 :])

    def moves(self, s):
        for i, p in enumerate(s.procs):
            yield self.hears(s, i), f"P{i} hears", None
            for event, start in (("take", s.now), ("ahead", s.now + 1)):
                if self.left(s, event) and not p.lost:
                    yield (
                        self.takes(self.spend(s, event), i, start),
                        f"P{i} takes u{len(s.units)}, from {start} on",
                        None,
                    )
            if any(u.uid in p.lost and u.end > s.now for u in p.units):
                yield from self.recovers(s, i, p)
        if s.message:
            t, _, fault = self.charge(s._replace(message=None), *s.message)
            yield t, "the late message arrives", fault
        yield from self.events(s)

    def takes(self, s, i, start):
        uid, end, (rec, time) = len(s.units), start + LIFE, self.write(s)
        rec = rec._replace(counts=tuple(sorted(rec.counts + ((uid, end),))))
        t = self.saved(s, rec, time, end)._replace(units=s.units + ((i, start, end, True),))
        t = self.hears(t, i)
        unit = Unit(uid, start, end, ((last_mark(rec.epochs), rec.n),), None)
        return self.put(t, i, t.procs[i]._replace(units=t.procs[i].units + (unit,)))

    def recovers(self, s, i, p):
        groups = {}
        for u in p.units:
            if u.uid in p.lost and u.end > s.now:
                groups.setdefault(u.grant, []).append(u)
        message = tuple((g, tuple((u.uid, u.end) for u in us)) for g, us in sorted(groups.items()))
        t, stamps, fault = self.charge(s, message, p.mark)
        word = f"P{i} charges " + " ".join(f"u{uid}" for _, parts in message for uid, _ in parts)
        if stamps is None:
            yield self.hears(t, i), word + ": not carried out", None
            return
        units = tuple(
            u._replace(stamps=u.stamps[:1] + (stamps[u.grant],)) if u.uid in p.lost and u.grant in stamps else u
            for u in p.units
        )
        yield self.hears(self.put(t, i, p._replace(units=units, lost=())), i), word, fault
        if self.left(s, "lost"):
            yield self.spend(t, "lost"), word + ", the answer is lost", fault
        if self.left(s, "late") and s.message is None:
            yield self.spend(s, "late")._replace(message=(message, p.mark)), word + ": the message is late", None

    def events(self, s):
        rec = self.record(s)
        deaf = tuple(p._replace(heard=False) for p in s.procs)
        if self.left(s, "tick"):
            yield self.spend(s, "tick")._replace(now=s.now + 1, procs=deaf), f"it is {s.now + 1}", None
        if self.left(s, "credit") and rec:
            for uid in {u for u, end in rec.counts if end > s.now}:
                new, time = self.write(s)
                new = new._replace(counts=tuple(c for c in new.counts if c[0] != uid))
                if "life" in self.without:
                    new = new._replace(until=max([end for _, end in new.counts + new.done], default=s.now))
                t = self.saved(self.spend(s, "credit"), new, time, 0)
                units = s.units[:uid] + (s.units[uid][:3] + (False,),) + s.units[uid + 1 :]
                yield t._replace(units=units, spared=s.spared + (uid,)), f"u{uid} is given back", None
        if self.left(s, "loss"):
            for h in dict.fromkeys(s.hist):
                t = self.spend(s, "loss")._replace(
                    gen=s.gens + 1, gens=s.gens + 1, rec=h, hist=s.hist[: s.hist.index(h) + 1]
                )
                yield t._replace(procs=deaf, spared=()), f"fail-over to {h.n if h else 'nothing'}", None
        if self.left(s, "evict") and rec:
            yield (
                self.spend(s, "evict")._replace(rec=None, hist=(None,), procs=deaf, spared=()),
                "the record is evicted",
                None,
            )

    def broken(self, s):
        rec = self.record(s)
        counts = [c for c in rec.counts if c[1] > s.now] if rec else []
        quiet = s.message is None and all(p.heard and not p.lost for p in s.procs)
        for uid, (_, _, end, must) in enumerate(s.units):
            ends = [e for u, e in counts if u == uid]
            if len(ends) > 1:
                return "double"
            if ends and uid in s.spared:
                return "given back, and charged again"
            if quiet and must and end > s.now and not ends:
                return "missing"
            if quiet and must and end > s.now and ends[0] < end:
                return "counts too short"
        return None


def run():
    for budget in (
        dict(take=2, tick=2, loss=1),
        dict(take=2, tick=3, loss=2),
        dict(take=2, tick=3, loss=1, evict=1, lost=1),
        dict(take=2, tick=3, loss=1, lost=1, late=1),
        dict(take=1, ahead=1, tick=3, loss=1, lost=1),
        dict(ahead=2, tick=3, loss=2),
        dict(take=2, tick=2, credit=1, loss=1, late=1),
        dict(take=2, tick=3, credit=2),
        dict(take=1, ahead=1, tick=3, credit=1, evict=1),
    ):
        check("lives", "H", Expiry(), budget, quick=len(budget) == 3 and budget["tick"] == 2)
    for rule, want, budget in [
        ("life", "given back, and charged again", dict(take=1, credit=1)),
        ("remember", "double", dict(take=1, tick=2, loss=1, lost=1)),
        ("end", "charged too late", dict(take=1, tick=2, loss=1, late=1)),
        ("epochs", "double", dict(take=2, tick=1, loss=1)),
        ("ahead", "counts too short", dict(ahead=1, loss=1)),
    ]:
        check(f"lives without {rule}", f"V {want}", Expiry(rule), budget, quick=True)
