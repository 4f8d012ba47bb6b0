"""Reservations in one record, and a concurrency limit of one.

A reservation holds units (one, or two for a lease: its holder spends them without asking) and the
slot. It is opened, renewed, settled with less, as much or more than it holds, cancelled, or it
ends; before and after a loss; and resets. All writes of a reservation are stamped, and judged as in
units.py.

Checked in each state: a reservation never counts twice; the slot is not given to another one while
its holder works, once the holder's process had an answer since the loss. Checked when nothing is
under way and every process had an answer: each reservation is in the record as its holder knows it.
"""

from collections import namedtuple

from search import World, check, last_mark, noted, present

# counts: settled units, by reservation; open: (reservation, end); done: recovered reservations, ~k
# while open
Rec = namedtuple("Rec", "n epochs counts open done reset")
# used: None while open; stamps: of the take; renewed, settled: of these; lost: what to do about it;
# mark: by which it was judged; sent: a reopening was, answered or not; final: settled as the store
# knows it
Res = namedtuple("Res", "owner end used stamps renewed settled lost mark sent final resets")
State = namedtuple("State", "gen rec hist olds gens time res heard foreign now resets message left")


class Reservations(World):
    EVENTS = "take settle renew tick loss back reset lost late foreign".split()
    OPTIONS = dict(used=(0, 1), holds=1)  # used: what settlements say; holds: the estimate

    def start(self, left):
        return State(1, None, (None,), (), 1, 0, (), (True,) * self.procs, (), 0, 0, None, left)

    # The store.

    def write(self, s):
        rec, instant = s.rec, s.time + 1
        epochs = noted(rec.epochs if rec else (), s.gen, rec.n if rec else None, instant)
        return (rec or Rec(0, (), (), (), (), 0))._replace(n=instant, epochs=epochs), s.time + 1

    def epochs(self, s):
        return noted(s.rec.epochs, s.gen, s.rec.n) if s.rec else ()

    def there(self, stamps, s):
        return present(stamps, self.epochs(s))

    def mark(self, s):
        return last_mark(self.epochs(s))

    def saved(self, s, rec, time):
        return s._replace(rec=rec, time=time, hist=s.hist + (rec,))

    def carry(self, s, k, op):
        """Carries out an operation on reservation k: the next state, its stamp, and whether it was gone."""
        r, rec = s.res[k], s.rec
        used = self.holds if r.used is None else r.used
        is_open = dict(rec.open if rec else ())
        counts, done = (rec.counts, rec.done) if rec else ((), ())
        stamp = (self.mark(s), rec.n if rec else 0)
        if op in ("open", "charge") and (k in done or rec and r.resets < rec.reset):
            return s, stamp, False
        if op in ("settle", "renew") and is_open.get(k, -1) < s.now:
            return s, stamp, True
        if op == "settle":
            del is_open[k]
            counts += (k,) * used
            done = tuple(k if d == ~k else d for d in done)
        elif op == "charge":
            is_open.pop(k, None)
            counts += (k,) * used
            done += () if "once" in self.without else (k,)
        else:
            is_open[k] = max(is_open.get(k, 0), r.end)
            done += (~k,) if op == "open" and "remember" not in self.without else ()
        rec, time = self.write(s)
        rec = rec._replace(
            counts=tuple(sorted(counts)), open=tuple(sorted(is_open.items())), done=tuple(sorted(set(done)))
        )
        return self.saved(s, rec, time), (last_mark(rec.epochs), rec.n), False

    # A process.

    def owes(self, r, s):
        """What is lost of a reservation, by an answer of now."""
        if s.rec and r.resets < s.rec.reset:
            return None
        took = self.there(r.stamps + r.renewed, s)  # a renewal was carried out, so the take was there
        if r.used is not None:
            if self.there(r.settled, s) or r.final:
                return None
            if took:
                return None if "settlements" in self.without else "settle"
            return "charge" if r.used or r.sent and "cancels" not in self.without else None
        if s.now > r.end:
            return None if took else "charge"
        if not took:
            return "charge" if "reopen" in self.without else "open"
        if r.renewed and not self.there(r.renewed, s) and "renewals" not in self.without:
            return "renew"
        return None

    def hears(self, s, i):
        """Process i judges what it holds by an answer of now."""
        for k, r in enumerate(s.res):
            if r.owner == i:
                s = self.put(s, k, lost=self.owes(r, s), mark=self.mark(s))
        return s._replace(heard=s.heard[:i] + (True,) + s.heard[i + 1 :])

    def put(self, s, k, **changes):
        return s._replace(res=s.res[:k] + (s.res[k]._replace(**changes),) + s.res[k + 1 :])

    def moves(self, s):
        for i in range(self.procs):
            yield self.hears(s, i), f"P{i} hears", None
            if self.left(s, "take"):
                yield from self.takes(s, i)
        for k, r in enumerate(s.res):
            mine, works = f"P{r.owner}", r.used is None and r.end >= s.now
            if works and self.left(s, "settle"):
                for used in self.used:
                    yield from self.settles(self.spend(s, "settle"), k, used)
            if works and self.left(s, "renew") and not r.lost and r.end == s.now:
                t, stamp, gone = self.carry(self.put(s, k, end=s.now + 1), k, "renew")
                t = self.put(t, k, renewed=(stamp,)) if not gone else s
                yield (
                    self.hears(self.spend(t, "renew"), r.owner),
                    f"{mine} renews r{k}" + (": gone" if gone else ""),
                    None,
                )
            if r.lost:
                yield from self.recovers(s, k)
            if (
                works
                and self.left(s, "foreign")
                and k not in s.foreign
                and s.rec
                and dict(s.rec.open).get(k, -1) >= s.now
            ):
                t, _, _ = self.carry(s, k, "settle")
                yield (
                    self.spend(t, "foreign")._replace(foreign=s.foreign + (k,)),
                    f"another process settles r{k}",
                    None,
                )
        if s.message:
            k, op, mark = s.message
            t = s._replace(message=None)
            if mark == self.mark(s):
                t, _, _ = self.carry(t, k, op)
            yield t, "the late message arrives", None
        yield from self.events(s)

    def takes(self, s, i):
        if any(r.owner == i and r.lost for r in s.res) or any(
            end >= s.now for _, end in (s.rec.open if s.rec else ())
        ):
            return
        k = len(s.res)
        two = any(
            r.used is None
            and r.end >= s.now
            and r.resets == s.resets
            and s.heard[r.owner]
            and not r.lost
            and j not in s.foreign
            for j, r in enumerate(s.res)
        )
        rec, time = self.write(s)
        rec = rec._replace(open=tuple(sorted(rec.open + ((k, s.now),))))
        res = Res(i, s.now, None, ((last_mark(rec.epochs), rec.n),), (), (), None, 0, False, False, s.resets)
        t = self.saved(self.spend(s, "take"), rec, time)
        yield self.hears(t._replace(res=s.res + (res,)), i), f"P{i} takes r{k}", "two holders" if two else None

    def settles(self, s, k, used):
        r = s.res[k]
        word = f"P{r.owner} settles r{k} with {used}"
        if r.lost:  # kept until the reservation is recovered
            yield self.put(s, k, used=used, lost="charge"), word + ": kept", None
            return
        t, stamp, gone = self.carry(self.put(s, k, used=used), k, "settle")
        if gone and "gone" in self.without:
            yield self.put(s, k, used=used, final=True), word + ": gone", None
            return
        if not gone or self.there(r.stamps, t):
            t = self.put(t, k, settled=(stamp,))
        yield self.hears(t, r.owner), word + (": gone" if gone else ""), None
        if self.left(s, "lost") and not gone:
            t = self.spend(self.put(t, k, settled=(), lost="settle", mark=self.mark(t)), "lost")
            yield t, word + ", the answer is lost", None

    def recovers(self, s, k):
        r, op = s.res[k], s.res[k].lost
        word = f"P{r.owner} recovers r{k}: {op}"
        if op in ("open", "charge") and r.mark != self.mark(s) and "condition" not in self.without:
            yield self.hears(s, r.owner), word + ": not carried out", None
            return
        t, stamp, gone = self.carry(s, k, op)
        if not gone:
            sent = r.sent or op == "open" and "answered ones" not in self.without
            yield self.hears(self.put(t, k, sent=sent, **self.stamped(r, op, stamp)), r.owner), word, None
            if self.left(s, "lost"):
                yield self.put(self.spend(t, "lost"), k, sent=True), word + ", the answer is lost", None
            if self.left(s, "late") and not s.message and op == "open":
                t = self.put(self.spend(s, "late"), k, sent=True)._replace(message=(k, op, r.mark))
                yield t, word + ": the message is late", None
            return
        if op == "settle" and self.there(r.stamps, t):  # the first one arrived, or the hold ended
            t = self.put(t, k, settled=r.settled[:1] + (stamp,))
        yield self.hears(t, r.owner), word + ": gone", None

    def stamped(self, r, op, stamp):
        if op == "renew":
            return {"renewed": (stamp,)}
        if op == "settle":
            return {"settled": r.settled[:1] + (stamp,)}
        new = {"stamps": r.stamps[:1] + (stamp,)}
        if op == "charge":
            new["settled"] = r.settled[:1] + (stamp,)
            if r.used is None and "reopen" not in self.without:
                new["used"] = self.holds
        elif r.renewed:
            new["renewed"] = (stamp,)
        return new

    # What happens to the store, and to the clock.

    def events(self, s):
        deaf = (False,) * self.procs
        if self.left(s, "tick"):
            yield self.spend(s, "tick")._replace(now=s.now + 1, heard=deaf), "holds end", None
        if self.left(s, "loss"):
            for h in dict.fromkeys(s.hist):
                olds = s.olds + ((s.gen, s.rec, s.hist),) if self.left(s, "back") else s.olds
                t = self.spend(s, "loss")._replace(gen=s.gens + 1, gens=s.gens + 1, rec=h, olds=olds, heard=deaf)
                yield t._replace(hist=s.hist[: s.hist.index(h) + 1]), f"fail-over to {h.n if h else 'nothing'}", None
        if self.left(s, "back"):
            for j, (gen, rec, hist) in enumerate(s.olds):
                olds = s.olds[:j] + s.olds[j + 1 :] + ((s.gen, s.rec, s.hist),)
                t = self.spend(s, "back")._replace(gen=gen, rec=rec, hist=hist, olds=olds, heard=deaf)
                yield t, "the old primary is back with its data", None
        if self.left(s, "reset") and s.rec:
            rec, time = self.write(s)
            epochs = rec.epochs if rec.epochs != s.rec.epochs else rec.epochs + (((s.gen, rec.n), s.rec.n),)
            rec = rec._replace(epochs=epochs, counts=(), open=(), done=(), reset=s.resets + 1)
            t = self.spend(s, "reset")._replace(resets=s.resets + 1, heard=deaf)
            yield self.saved(t, rec, time), "reset", None

    def broken(self, s):
        counts, is_open = (s.rec.counts, dict(s.rec.open)) if s.rec else ((), {})
        quiet = s.message is None and all(s.heard) and not any(r.lost for r in s.res)
        for k, r in enumerate(s.res):
            total = counts.count(k) + (self.holds if k in is_open else 0)
            if total > max(self.holds, r.used or 0):
                return "double"
            if not quiet or k in s.foreign:
                continue
            if r.resets < s.resets:  # a fail-over may have forgotten the reset
                if total and s.rec.reset > r.resets:
                    return "forgiven and charged"
            elif r.used is None:
                if total < self.holds:
                    return "missing"
                if r.end >= s.now and is_open.get(k, -1) < r.end and "reopen" not in self.without:
                    return "the slot is free too early"
            elif total < r.used:
                return "missing"
            elif is_open.get(k, -1) >= s.now:
                return "settled, and open"
            elif total > r.used and s.now == 0:
                return "settled, and counted as held"
        return None


def run():
    for procs, used, budget in [
        (2, (0, 1), dict(take=2, settle=1, loss=1)),
        (2, (0, 1, 2), dict(take=2, settle=2, loss=2)),
        (2, (0, 1, 2), dict(take=2, settle=2, loss=1, lost=1, late=1)),
        (2, (0, 1, 2), dict(take=3, settle=2, loss=1, late=1)),
        (2, (0, 1, 2), dict(take=2, settle=2, loss=1, back=1, lost=1)),
        (2, (0, 1, 2), dict(take=1, settle=1, loss=2, back=1, lost=1)),
        (2, (0, 1), dict(take=1, settle=1, renew=1, tick=1, loss=2, back=1)),
        (2, (0, 1), dict(take=2, settle=1, renew=1, tick=1, loss=1, back=1)),
        (2, (0, 1), dict(take=2, settle=1, renew=1, tick=2, loss=1)),
        (2, (0, 1), dict(take=1, settle=1, renew=1, tick=2, loss=2, lost=1)),
        (3, (0, 1), dict(take=3, settle=1, tick=1, loss=1)),
        (2, (0, 1), dict(take=2, settle=1, loss=2, late=1, foreign=1)),
        (2, (0, 1), dict(take=2, settle=2, loss=1, reset=1, late=1)),
        (2, (0, 1), dict(take=2, settle=1, loss=1, reset=1, lost=1, tick=1)),
    ]:
        check(
            "reservations",
            "H",
            Reservations(procs=procs, used=used),
            budget,
            quick=len(budget) == 3 and budget["loss"] == 1,
        )
    for rule, want, budget in [
        ("reopen", "two holders", dict(take=2, loss=1)),
        ("renewals", "the slot is free too early", dict(take=1, renew=1, tick=1, loss=1)),
        ("settlements", "settled, and open", dict(take=1, settle=1, loss=1)),
        ("gone", "missing", dict(take=1, settle=1, loss=1)),
        ("cancels", "settled, and open", dict(take=1, settle=1, loss=1, lost=1)),
        ("answered ones", "settled, and open", dict(take=1, settle=1, loss=2, back=1)),
        ("remember", "double", dict(take=2, settle=1, loss=1, late=1)),
        ("once", "double", dict(take=1, settle=1, loss=1, lost=1)),
        ("condition", "double", dict(take=1, settle=1, loss=1, back=1)),
    ]:
        check(f"reservations without {rule}", f"V {want}", Reservations(rule), budget, quick=True)
    check(
        "reservations without settlements, used beyond the estimate",
        "V missing",
        Reservations("settlements", used=(2,)),
        dict(take=1, settle=1, loss=1),
        quick=True,
    )

    # A lease holds two units, which its holder spends without asking: also between the loss and the
    # reopening.
    for budget in (
        dict(take=1, settle=1, loss=1),
        dict(take=2, settle=2, loss=2),
        dict(take=2, settle=2, loss=1, lost=1, late=1),
        dict(take=2, settle=1, renew=1, tick=2, loss=1),
        dict(take=2, settle=1, tick=1, loss=1, back=1, lost=1),
    ):
        # What is used beyond the estimate of a hold that has ended is the limiter's to charge.
        used = (0, 1, 2) if "tick" in budget else (0, 1, 2, 3)
        quick = len(budget) == 3 and budget["loss"] == 1
        check("leases", "H", Reservations(holds=2, used=used), budget, quick)
    check(
        "leases without reopen",
        "V two holders",
        Reservations("reopen", holds=2, used=(0, 1, 2)),
        dict(take=2, loss=1),
        quick=True,
    )
    check(
        "leases without gone",
        "V missing",
        Reservations("gone", holds=2, used=(1,)),
        dict(take=1, settle=1, loss=1),
        quick=True,
    )
