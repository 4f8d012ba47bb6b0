"""Plain units over one record.

Takes, charges of an outage, and charges that recover what was lost; answers that are lost or late,
messages that arrive late; evictions; fail-overs to any earlier state, and a superseded primary that
returns with its data; migrations there and back; resets and downward adjustments; processes that
restart and forget; a process of the version before, which ignores all of this.

Checked in each state: no unit counts twice, and none that a reset forgave. Checked when nothing is
under way and every living process had an answer since the last loss: every unit of a living process
counts.
"""

from collections import namedtuple

from search import World, check, last_mark, noted, present

Rec = namedtuple(
    "Rec", "n epochs counts done reset"
)  # n: instant of the last write; done: stamps by grants; reset: its number
Answer = namedtuple("Answer", "epochs reset")
Unit = namedtuple(
    "Unit", "uid stamps grant resets sent"
)  # resets: how many there had been when it was admitted (its instant)
Late = namedtuple("Late", "uid stamp mark answer resets")  # an answer on its way; answer: None if it has no list
Proc = namedtuple(
    "Proc", "units lost known heard late"
)  # lost: to recover; known: the answer by which the units were judged last
NEW = Proc((), (), None, True, None)
State = namedtuple("State", "gen rec hist olds gens time procs fate resets message left_by left")


class Units(World):
    EVENTS = "take outage loss evict back migrate reset adjust restart lost slow late older".split()
    # keep: epochs in a list; skew: by how much the clock of each later server is behind; merge:
    # units share a stamp; calm: nothing may be judged lost; misses: a loss may be missed
    OPTIONS = dict(keep=9, skew=0, merge=False, calm=False, misses=False)

    def start(self, left):
        return State(1, None, (None,), (), 1, 0, (NEW,) * self.procs, (), 0, None, (), left)

    # The store.

    def clock(self, s, gen):
        """The server's clock at its next write."""
        return s.time + 1 - self.skew * (gen - 1)

    def write(self, s, gen=None):
        """The record at its next write, and the time after it."""
        gen, rec = gen or s.gen, s.rec
        clock = self.clock(s, gen)
        instant = clock
        if rec and "strict" not in self.without:
            instant = max(instant, rec.n + 1)
        elif rec:
            instant = rec.n  # the clock stands still
        epochs = noted(rec.epochs if rec else (), gen, rec.n if rec else None, clock)[-self.keep :]
        return (rec or Rec(0, (), (), (), 0))._replace(n=instant, epochs=epochs), s.time + 1

    def answer(self, s, gen=None):
        """What an answer says that wrote nothing: the list as a write would have made it."""
        rec = s.rec
        if rec is None:
            return Answer((), 0)
        if "refusals" in self.without:
            return Answer(rec.epochs, rec.reset)
        pending = 0 if "pending" in self.without else None
        return Answer(noted(rec.epochs, gen or s.gen, rec.n, pending)[-self.keep :], rec.reset)

    def charge(self, s, message, mark):
        """Carries out charges that were judged under a mark: the next state, and a stamp for each grant, or None."""
        rec = s.rec
        if mark != last_mark(self.answer(s).epochs) and "condition" not in self.without:
            return s, None
        have = dict(rec.done) if rec else {}
        if rec and "forgive" not in self.without:  # admitted before the reset
            have |= {g: None for g, uids in message if all(s.fate[u][2] < rec.reset for u in uids)}
        if all(g in have for g, _ in message):
            return s, {g: have[g] for g, _ in message}
        rec, time = self.write(s)
        stamp = (last_mark(rec.epochs), rec.n)
        for g, uids in message:
            if g not in have:
                have[g] = stamp
                rec = rec._replace(counts=tuple(sorted(rec.counts + uids)), done=rec.done + ((g, stamp),))
        return s._replace(rec=rec, time=time, hist=s.hist + (rec,)), {g: have[g] for g, _ in message}

    # A process.

    def verdict(self, unit, a):
        if unit.resets < a.reset and "forgive" not in self.without:
            return "forgiven"
        if present(unit.stamps, a.epochs, self.without):
            return "kept"
        if unit.sent and a.epochs[:1] and a.epochs[0][0] == (0, 0) and "others" not in self.without:
            return "kept"  # a program of the version before may have dropped the grant, and not the units
        return "lost"

    def judged(self, units, a):
        """The units that still count, and which of them are lost."""
        keep = [u for u in units if self.verdict(u, a) != "forgiven"]
        lost = [u.uid for u in keep if self.verdict(u, a) == "lost"]
        fresh = [u.uid for u in keep if u.uid in lost and not u.grant]
        return tuple(u._replace(grant=fresh[0] + 1) if u.uid in fresh else u for u in keep), tuple(lost)

    def hears(self, p, a):
        """The process after an answer with a list."""
        if p.known and last_mark(p.known.epochs) == last_mark(a.epochs):
            return p
        units, lost = self.judged(p.units, a)
        return p._replace(units=units, lost=lost, known=a)

    def moves(self, s):
        for i, p in enumerate(s.procs):
            # A refusal, or a peek.
            yield self.put(s, i, self.hears(p, self.answer(s))._replace(heard=True)), f"P{i} hears", None
            if self.left(s, "take") and not p.lost:
                yield from self.takes(s, i, p)
            if p.late:
                yield self.arrives(s, i, p)
            if self.left(s, "outage"):
                uid = len(s.fate)
                t = self.spend(s, "outage")._replace(fate=s.fate + ((i, "must", s.resets),))
                q = p._replace(units=p.units + (Unit(uid, (), uid + 1, s.resets, False),), lost=p.lost + (uid,))
                yield self.put(t, i, q), f"P{i} admits u{uid} in an outage", None
            if p.lost and p.known:  # there is no charge without a condition: it asks first
                yield from self.recovers(s, i, p)
            if self.left(s, "restart") and (p.units or p.late):
                t = self.spend(s, "restart")
                fate = tuple((who, "may" if f == "must" and who == i else f, r) for who, f, r in t.fate)
                yield self.put(t._replace(fate=fate), i, NEW), f"P{i} restarts", None
        if s.message:
            t, _ = self.charge(s._replace(message=None), *s.message)
            yield t, "the late message arrives", None
        yield from self.losses(s)
        yield from self.operator(s)
        yield from self.older(s)

    def takes(self, s, i, p):
        uid, gens = len(s.fate), [s.gen]
        if "named" in self.without and s.rec and last_mark(s.rec.epochs)[0] != s.gen:
            gens.append(last_mark(s.rec.epochs)[0])  # the connection was made before
        for gen in gens:
            rec, time = self.write(s, gen)
            rec = rec._replace(counts=tuple(sorted(rec.counts + (uid,))))
            t = self.spend(s, "take")
            t = t._replace(rec=rec, time=time, hist=s.hist + (rec,), fate=s.fate + ((i, "must", s.resets),))
            stamp, a = (last_mark(rec.epochs), rec.n), self.answer(t, gen)
            q = self.hears(p, a)
            units = self.merged(q.units, stamp) if self.merge else q.units
            q = q._replace(units=units + (Unit(uid, (stamp,), 0, s.resets, False),), heard=True)
            word = f"P{i} takes u{uid} at {rec.n}" + (" (under the old generation)" if gen != s.gen else "")
            yield self.put(t, i, q), word, None
            if self.left(s, "slow") and p.late is None:
                same = p.known and last_mark(p.known.epochs) == last_mark(a.epochs)
                t = self.spend(self.fated(t, uid, "may"), "slow")
                late = Late(uid, stamp, last_mark(a.epochs), None if same else a, s.resets)
                yield self.put(t, i, p._replace(late=late)), word + ", the answer is under way", None

    def merged(self, units, stamp):
        """Units under one mark share a stamp, with the latest instant."""
        return tuple(u._replace(stamps=(stamp,)) if not u.grant and u.stamps[0][0] == stamp[0] else u for u in units)

    def arrives(self, s, i, p):
        w = p.late
        p = self.hears(p, w.answer) if w.answer else p
        unit = Unit(w.uid, (w.stamp,), 0, w.resets, False)
        if last_mark(p.known.epochs) == w.mark or "late units" in self.without:
            p = p._replace(units=p.units + (unit,))
        else:  # the answer has no list: the unit is judged by the latest one
            units, lost = self.judged((unit,), p.known)
            p = p._replace(units=p.units + units, lost=p.lost + lost)
        t = self.fated(s, w.uid, "must" if w.resets >= s.resets else "not")
        return self.put(t, i, p._replace(late=None, heard=False)), f"P{i}: the answer for u{w.uid} arrives", None

    def recovers(self, s, i, p):
        groups = {}
        for u in p.units:
            if u.uid in p.lost:
                groups.setdefault(("again", u.grant, s.time) if "grant" in self.without else u.grant, []).append(
                    u.uid
                )
        message = tuple(sorted(((g, tuple(uids)) for g, uids in groups.items()), key=repr))
        mark = last_mark(p.known.epochs)
        t, stamps = self.charge(s, message, mark)
        word = (
            f"P{i} charges "
            + " ".join(f"u{u}" for _, uids in message for u in uids)
            + ("" if stamps else ": not carried out")
        )
        sent = p._replace(
            units=tuple(u._replace(sent=True) if not u.stamps and u.uid in p.lost else u for u in p.units)
        )
        q = p
        if stamps:
            told = {u: stamps[g] for g, uids in message for u in uids}
            q = p._replace(
                lost=(), units=tuple(self.stamped(u, told[u.uid]) if u.uid in told else u for u in p.units)
            )
        yield self.put(t, i, self.hears(q, self.answer(t))._replace(heard=True)), word, None
        if self.left(s, "lost") and stamps:
            yield self.put(self.spend(t, "lost"), i, sent), word + ", the answer is lost", None
        if self.left(s, "late") and s.message is None:
            t = self.spend(s, "late")._replace(message=(message, mark))
            yield self.put(t, i, sent), word + ": the message is late", None

    def stamped(self, unit, stamp):
        if not stamp:  # forgiven
            return unit
        return unit._replace(stamps=(stamp,) if "stamps" in self.without else unit.stamps[:1] + (stamp,))

    # What happens to the store.

    def losses(self, s):
        if self.left(s, "loss"):
            for h in dict.fromkeys(s.hist):
                olds = s.olds + ((s.gen, s.rec, s.hist),) if self.left(s, "back") else s.olds
                t = self.deafened(self.spend(s, "loss"))
                t = t._replace(gen=s.gens + 1, gens=s.gens + 1, rec=h, hist=s.hist[: s.hist.index(h) + 1], olds=olds)
                yield t, f"fail-over to {h.n if h else 'nothing'}", None
        if self.left(s, "evict") and s.rec:
            yield (
                self.deafened(self.spend(s, "evict"))._replace(rec=None, hist=(None,)),
                "the record is evicted",
                None,
            )
        if self.left(s, "back"):
            for k, (gen, rec, hist) in enumerate(s.olds):
                olds = s.olds[:k] + s.olds[k + 1 :] + ((s.gen, s.rec, s.hist),)
                t = self.deafened(self.spend(s, "back"))._replace(gen=gen, rec=rec, hist=hist, olds=olds)
                yield t, "the old primary is back with its data", None
        if self.left(s, "migrate") and s.rec:  # back to a generation only that it left by a migration
            for gen in {s.gens + 1} | set(s.left_by):
                t = self.spend(s, "migrate")
                t = t._replace(gen=gen, gens=max(gen, s.gens), hist=(s.rec,), left_by=s.left_by + (s.gen,))
                yield t, f"migration to generation {gen}", None

    def operator(self, s):
        if self.left(s, "reset") and s.rec:
            t = self.deafened(self.spend(s, "reset"))._replace(resets=s.resets + 1)
            t = t._replace(fate=tuple((w, "not" if f == "must" else f, r) for w, f, r in t.fate))
            if "mark" in self.without:
                yield t._replace(rec=None, hist=s.hist + (None,)), "reset (the record is deleted)", None
            else:
                rec, time = self.write(s)
                epochs = (
                    rec.epochs
                    if rec.epochs != s.rec.epochs
                    else rec.epochs + (((s.gen, self.clock(s, s.gen)), s.rec.n),)
                )
                rec = rec._replace(epochs=epochs, counts=(), reset=t.resets)
                yield t._replace(rec=rec, time=time, hist=s.hist + (rec,)), "reset", None
        if self.left(s, "adjust") and s.rec and s.rec.counts:
            uid, (rec, time) = max(s.rec.counts), self.write(s)
            rec = rec._replace(counts=tuple(u for u in rec.counts if u != uid))
            t = self.fated(self.spend(s, "adjust"), uid, "may")
            if "no forgiving" in self.without:  # an adjustment forgives, as a reset does
                rec, t = rec._replace(reset=t.resets + 1), t._replace(resets=t.resets + 1)
            yield t._replace(rec=rec, time=time, hist=s.hist + (rec,)), f"adjusted down by u{uid}", None

    def older(self, s):
        """A program of the version before writes: it keeps the fields that it does not know, but for one case."""
        if not self.left(s, "older"):
            return
        t, rec = self.spend(s, "older"), s.rec or Rec(0, (), (), (), 0)
        rec = rec._replace(n=max(rec.n, self.clock(s, s.gen)))
        yield t._replace(rec=rec, time=s.time + 1, hist=s.hist + (rec,)), "the older program takes", None
        if s.rec and s.rec.epochs:
            rec = rec._replace(epochs=(), done=())
            yield (
                t._replace(rec=rec, time=s.time + 1, hist=s.hist + (rec,)),
                "the older program drops the fields",
                None,
            )

    # Helpers.

    def put(self, s, i, p):
        return s._replace(procs=s.procs[:i] + (p,) + s.procs[i + 1 :])

    def deafened(self, s):
        return s._replace(procs=tuple(p._replace(heard=False) for p in s.procs))

    def fated(self, s, uid, fate):
        who, _, resets = s.fate[uid]
        return s._replace(fate=s.fate[:uid] + ((who, fate, resets),) + s.fate[uid + 1 :])

    def broken(self, s):
        counts = s.rec.counts if s.rec else ()
        reset = s.resets if "mark" in self.without else s.rec.reset if s.rec else 0
        quiet = s.message is None and all(p.heard and not p.lost and not p.late for p in s.procs)
        if self.calm and any(p.lost for p in s.procs):
            return "judged lost though nothing was"
        for uid, (_, fate, resets) in enumerate(s.fate):
            n = counts.count(uid)
            if n > 1:
                return "double"
            if quiet and n and fate == "not" and reset > resets:
                return "forgiven and charged"
            if quiet and not n and fate == "must" and not self.misses:
                return "missing"
        return None


def run():
    for procs, budget in [
        (2, dict(take=2, loss=2)),
        (2, dict(take=4, loss=2)),
        (3, dict(take=3, loss=2)),
        (2, dict(take=3, loss=2, slow=1)),
        (2, dict(take=3, outage=1, loss=1, lost=1)),
        (2, dict(take=1, outage=1, loss=2, lost=1, late=1)),
        (2, dict(take=2, outage=1, loss=1, lost=1, late=1)),
        (2, dict(take=1, outage=2, loss=1, lost=2)),
        (2, dict(take=3, loss=1, back=2, slow=1)),
        (2, dict(take=2, loss=2, back=1, late=1)),
        (2, dict(take=3, loss=1, migrate=2, slow=1)),
        (2, dict(take=3, loss=1, reset=1, late=1, slow=1)),
        (2, dict(take=1, outage=1, loss=1, reset=1, lost=1, late=1)),
        (2, dict(take=3, loss=1, evict=1, restart=1)),
        (3, dict(take=3, loss=1, restart=1)),
        (3, dict(take=3, loss=1, reset=1)),
        (3, dict(take=2, outage=1, loss=1, lost=1)),
        (2, dict(take=3, loss=1, evict=1, slow=1, late=1)),
    ]:
        check("units", "H", Units(procs=procs), budget, quick=len(budget) == 2 and budget["take"] == 2)
    for rule, want, budget in [
        ("instant", "missing", dict(take=3, loss=1)),
        ("refusals", "missing", dict(take=3, loss=1)),
        ("named", "missing", dict(take=3, loss=1)),
        ("condition", "double", dict(take=3, loss=1, slow=1)),
        ("stamps", "double", dict(take=3, loss=1, back=1)),
        ("condition", "double", dict(take=3, loss=1, back=1)),
        ("grant", "double", dict(take=1, outage=1, loss=1, lost=1)),
        ("grant", "double", dict(take=2, loss=2, lost=1)),
        ("forgive", "forgiven and charged", dict(take=2, loss=1, reset=1)),
        ("mark", "forgiven and charged", dict(take=2, reset=1)),
    ]:
        check(f"units without {rule}", f"V {want}", Units(rule), budget, quick=True)
    check("units, one epoch listed", "V double", Units(keep=1), dict(take=3, loss=1), quick=True)
    check("units, two epochs listed, three passed", "V double", Units(keep=2), dict(take=4, loss=2))
    check("units that share a stamp", "V double", Units(merge=True), dict(take=3, loss=1), quick=True)

    # The instant of the decision in place of a count; the list only if the caller does not know the
    # last mark.
    for budget in (
        dict(take=3, loss=2, evict=1),
        dict(take=3, loss=1, back=1, slow=1),
        dict(take=2, loss=1, migrate=2, lost=1),
    ):
        check("clocks of later servers are behind", "H", Units(skew=3), budget)
    check("units without strict", "V missing", Units("strict"), dict(take=3, loss=1), quick=True)
    check(
        "units without pending", "V missing", Units("pending"), dict(take=2, migrate=2, loss=1, evict=1), quick=True
    )
    check("units without late units", "V missing", Units("late units"), dict(take=4, loss=2, slow=1))

    # An operator adjusts down.
    for budget in (
        dict(take=3, loss=2, adjust=1),
        dict(take=3, loss=1, adjust=1, late=1, lost=1),
        dict(take=3, evict=1, adjust=2),
    ):
        check("adjusted down", "H", Units(), budget)
    check(
        "adjusted down without no forgiving",
        "V missing",
        Units("no forgiving"),
        dict(take=2, evict=1, adjust=1),
        quick=True,
    )

    # Redis Cluster: slots that migrate, replicas that are promoted.
    check("migrations", "H", Units(calm=True), dict(take=2, migrate=2), quick=True)
    for budget in (dict(take=3, migrate=3, restart=1), dict(take=3, migrate=2, adjust=1, reset=1)):
        check("migrations", "H", Units(calm=True), budget)
    check(
        "migrations, with late answers",
        "V judged lost though nothing was",
        Units(calm=True),
        dict(take=3, migrate=1, slow=1),
    )
    for budget in (
        dict(take=3, migrate=2, loss=1, evict=1),
        dict(take=2, migrate=1, loss=2, back=1),
        dict(take=2, outage=1, migrate=1, loss=1, lost=1),
    ):
        check("migrations and promotions", "H", Units(), budget)

    # A program of the version before.
    for budget in (
        dict(take=2, loss=1, older=1),
        dict(take=3, loss=1, older=2, restart=1),
        dict(take=2, loss=2, older=1, lost=1),
        dict(take=2, loss=1, back=1, older=1, slow=1),
        dict(take=2, evict=1, migrate=1, older=2, late=1),
        dict(take=1, outage=1, loss=1, older=1, lost=1),
        dict(take=2, loss=1, older=1, reset=1),
    ):
        check("an older program beside", "H", Units(misses=True), budget, quick=len(budget) == 3)
    check(
        "an older program beside: what may be missed", "V missing", Units(), dict(take=2, loss=1, older=1), quick=True
    )
    check(
        "an older program beside, without others",
        "V double",
        Units("others", misses=True),
        dict(take=2, older=1),
        quick=True,
    )
