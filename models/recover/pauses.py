"""Pauses of one record: set until an instant, and ended, before and after a loss.

Whoever set or ended a pause remembers that until the pause's end. The record remembers when a pause
was ended last. So a process compares what it did with the record: neither marks nor grants are
needed. It sets its pause again if the record is paused for less and none was ended since; it ends
pauses again that were set before it ended one. Instants are numbers here: the order in which things
were done.

Checked when every process had an answer since the last change: the record is paused if and only if
it should be, and not for longer.
"""

from collections import namedtuple

from search import World, check

Rec = namedtuple("Rec", "until set ended")  # set: when the pause in force was set; ended: when one was ended last
NOTHING = Rec(0, -1, -1)
Item = namedtuple("Item", "number op until")  # op: set or end; until: the end of that pause
State = namedtuple("State", "rec hist olds log items lost heard now message left")


class Pauses(World):
    EVENTS = "set end tick loss back lost late".split()

    def start(self, left):
        nobody = ((),) * self.procs
        return State(NOTHING, (NOTHING,), (), (), nobody, nobody, (True,) * self.procs, 0, None, left)

    def carry(self, s, item):
        rec = s.rec
        if item.op == "end":
            if rec.set < item.number:  # not one that was set later
                rec = rec._replace(until=0, set=-1)
            rec = rec._replace(ended=max(rec.ended, item.number))
        elif (item.number > rec.ended or "ended" in self.without) and item.until > rec.until:
            rec = rec._replace(until=item.until, set=item.number)
        return s._replace(rec=rec, hist=s.hist + (rec,), heard=(False,) * self.procs)

    def hears(self, s, i):
        """Process i compares what it did with an answer of now."""
        items = tuple(it for it in s.items[i] if it.until > s.now and (it.op == "end" or it.number > s.rec.ended))
        lost = tuple(
            it.number for it in items if (s.rec.until < it.until if it.op == "set" else s.rec.ended < it.number)
        )
        if "ends" in self.without:
            lost = tuple(it.number for it in items if it.number in lost and it.op == "set")
        t = s._replace(items=s.items[:i] + (items,) + s.items[i + 1 :], lost=s.lost[:i] + (lost,) + s.lost[i + 1 :])
        return t._replace(heard=s.heard[:i] + (True,) + s.heard[i + 1 :])

    def moves(self, s):
        for i in range(self.procs):
            yield self.hears(s, i), f"P{i} hears", None
            if self.left(s, "set"):
                for until in (s.now + 1, s.now + 2):
                    if until > s.rec.until:  # otherwise its caller is told that it is paused for longer
                        yield self.does(s, i, Item(len(s.log), "set", until)), f"P{i} pauses until {until}", None
            if self.left(s, "end") and s.rec.until > s.now:
                item = Item(len(s.log), "end", s.rec.until)
                yield self.does(s, i, item), f"P{i} ends the pause until {s.rec.until}", None
            for it in s.items[i]:
                if it.number in s.lost[i] and it.until > s.now:
                    yield from self.again(s, i, it)
        if s.message:
            yield self.carry(s, s.message)._replace(message=None), "the late message arrives", None
        yield from self.events(s)

    def does(self, s, i, item):
        t = self.carry(self.spend(s, item.op), item)
        items = t.items[:i] + (t.items[i] + (item,),) + t.items[i + 1 :]
        return self.hears(t._replace(log=s.log + ((item.op, item.until),), items=items), i)

    def again(self, s, i, it):
        sent = (
            it._replace(until=it.until + s.now) if "until" in self.without else it
        )  # for as long as it was asked for
        t = self.carry(s, sent)
        word = f"P{i} {it.op}s the pause until {it.until} again"
        yield self.hears(t, i), word, None
        if self.left(s, "lost"):
            yield self.spend(t, "lost"), word + ", the answer is lost", None
        if self.left(s, "late") and not s.message:
            yield self.spend(s, "late")._replace(message=sent), word + ": the message is late", None

    def events(self, s):
        deaf = (False,) * self.procs
        if self.left(s, "tick"):
            yield self.spend(s, "tick")._replace(now=s.now + 1, heard=deaf), "time passes", None
        if self.left(s, "loss"):
            for h in dict.fromkeys(s.hist):
                olds = s.olds + ((s.rec, s.hist),) if self.left(s, "back") else s.olds
                t = self.spend(s, "loss")._replace(rec=h, hist=s.hist[: s.hist.index(h) + 1], olds=olds, heard=deaf)
                yield t, f"fail-over to {'a pause until ' + str(h.until) if h.until else 'no pause'}", None
        if self.left(s, "back"):
            for j, (rec, hist) in enumerate(s.olds):
                olds = s.olds[:j] + s.olds[j + 1 :] + ((s.rec, s.hist),)
                yield (
                    self.spend(s, "back")._replace(rec=rec, hist=hist, olds=olds, heard=deaf),
                    "the old primary is back",
                    None,
                )

    def broken(self, s):
        if s.message or not all(s.heard) or any(s.lost):
            return None
        should, longest, may = 0, 0, 0
        for op, until in s.log:
            if op == "end" and s.now >= until:  # forgotten: a longer one, which was lost then, may come back
                may = longest
            should = max(should, until) if op == "set" else 0
            longest = max(longest, until)
        if s.rec.until > longest:
            return "prolonged"
        if s.rec.until > s.now and max(should, may) <= s.now:
            return "paused, and was ended"
        return "not paused" if should > s.now and s.rec.until < should else None


def run():
    for budget in (
        dict(set=1, end=1, loss=1),
        dict(set=2, end=1, loss=2),
        dict(set=2, end=2, loss=1, tick=1),
        dict(set=2, end=1, loss=1, back=1, lost=1),
        dict(set=2, end=1, loss=2, late=1, tick=1),
        dict(set=3, end=1, loss=2, tick=1),
    ):
        check("pauses", "H", Pauses(), budget, quick=budget["set"] == 1)
    check("pauses", "H", Pauses(procs=3), dict(set=2, end=1, loss=2))
    for rule, want, budget in [
        ("ended", "paused, and was ended", dict(set=1, end=1, loss=1)),
        ("ends", "paused, and was ended", dict(set=1, end=1, loss=1)),
        ("until", "prolonged", dict(set=1, loss=1, tick=1)),
    ]:
        check(f"pauses without {rule}", f"V {want}", Pauses(rule), budget, quick=True)
