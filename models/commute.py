#!/usr/bin/env python3
"""commute.py - takes of one DynamoDB item that commute.

The item has a record (what was folded) and a log of what was appended since. A process decides by its image of the item, which may
be old. An append is written on conditions that stay true whatever other appends have landed meanwhile: the counter a, which takes
raise, is at most what the image had, and the room that the image shows. A fold puts the log that its image has into the record.

Explored: every history of some processes that start the operations of a scenario in any order, each by an image that is old or
fresh; of requests that arrive later; of replies that are lost; of requests that arrive a second time, or after their process has
stopped waiting; of an item that is deleted. One tick of time stands for the error of a clock, the lateness that is allowed, and
the life of a mark.

Checked, whenever something lands or is answered:
  over      units granted in one window, or slots in use at one instant, exceed the amount
  twice     a take is counted twice in an item, or counted although its caller was refused
  lost      a unit that was granted and is in use is not in the item
  settled   a reservation is settled twice
  kept      a slot is in use although its reservation was settled
  paused    a take lands after a pause was acknowledged, decided by an image from before it

Exit status: 1 if a run does not give the expected verdict: H holds, V violated. --quick leaves out the runs of more than some
seconds."""
import sys
import time
from collections import Counter, namedtuple

quick = "--quick" in sys.argv
only = [a for a in sys.argv[1:] if not a.startswith("--")]

W = 1  # a rolling window, in ticks
LATE = 1  # so much later than its instant allows a write may be carried out
H = 1  # a hold

Item = namedtuple("Item", "life epoch base a writes closed paused last units open log tokens marks floor")
# units: (date, tag); open: (id, grant, end); log: (date, order, "t", tag, id, end) a take, (date, order, "u", tag, id, 0) a
# settlement; tokens: (id, grant), negative once settled; marks: per process, the seq of its last write
Call = namedtuple("Call", "op tag id pending sent")  # pending: the request it waits for; sent: those that may still arrive
Proc = namedtuple("Proc", "image call seq")  # seq: of its last request
# tag: the number of the take, which is its grant, too; saw: whether the image was paused; end: of the hold; drop: the marks that a
# fold removes; gone: the tokens; new: the record that a fold writes and the entries in it, the date of an append, else the item
Req = namedtuple("Req", "kind proc seq first t life what tag id end saw epoch bound base new drop gone floor writes")
# kind: append, fold, create, close, replace; what: take, settle, renew, pause, fold, empty
State = namedtuple("State", "now item procs limbo ops ledger acked")  # limbo: copies that may arrive; ops: what may still happen
# ledger: what the takes were told, how often each is counted in the item, when that was, and until when the holder may use it
Take = namedtuple("Take", "told count at end id back settled stopped")

# The rules. A run leaves out some.
RULES = {
    "bound",  # a take is written if a is at most what the image had, and the room
    "raised",  # a fold does not lower a
    "epoch",  # what uses more than takes do, or forbids takes, raises the epoch
    "token",  # a settlement is written if the reservation's token is there
    "mark",  # a write is written if its process has written nothing since
    "floor",  # who drops marks leaves a floor, below which nothing is written
    "life",  # an item that was made again is another one
    "first",  # the mark must be lower than that of the call's first attempt
    "base",  # one fold of two that have the same image lands
    "late",  # what was carried out late is not used
    "margin",  # units count longer by what clocks may be wrong
    "empty",  # who refuses writes a mark first, if something may still arrive
    "floor first",  # the floor is compared with the call's first attempt, not with the instant of this one
    "marks seen",  # a fold drops marks only if they are still as in its image
    "renew bound",  # a renewal has the bound of a take
    "tombstone",  # a settlement leaves a token, which the fold removes that has it in its image
    "in order",  # what is appended is not dated before what the image has
    "epoch kept",  # an item that is opened again has a higher epoch
    "failed too",  # a take with an id whose condition failed may still arrive a second time
    "found",  # of a write that is found by a read, the clock's early instant must not be late
    "below the floor",  # marks are dropped that are lower than the floor, not equal
}


class Violated(Exception):
    pass


class Model:
    def __init__(self, kind, procs, amount, ops, horizon, blur=1, ids=(0,), marklife=9, held=False, marked=False, rules=RULES):
        self.held, self.marked = held, marked  # at the start: a reservation is open; process 0 has left a mark
        self.kind, self.amount, self.ops, self.horizon, self.blur, self.ids, self.rules = kind, amount, ops, horizon, blur, ids, rules
        self.skew = [i % (blur + 1) for i in range(procs)]  # how slow each clock is
        self.marklife, self.nprocs = marklife, procs
        self.keep = W + (blur + LATE if "margin" in rules else 0)

    # The record.

    def replay(self, it, now):
        last, units, opened = it.last, list(it.units), list(it.open)
        for date, _, what, tag, rid, end in sorted(it.log):
            last = max(last, date)
            self.leave(units, opened, last)
            if what == "t":
                if rid is not None:
                    if any(o[0] == rid for o in opened):
                        continue  # ids are unique among open reservations
                    opened.append((rid, tag, end))
                units.append((last, tag))
            elif any(o[:2] == (rid, tag) for o in opened):
                opened = [o for o in opened if o[1] != tag]
                units = [u for u in units if u[1] != tag]
        last = max(last, now)
        self.leave(units, opened, last)
        return last, tuple(sorted(units)), tuple(sorted(opened))

    def leave(self, units, opened, now):
        ended = {o[1] for o in opened if o[2] <= now}
        opened[:] = [o for o in opened if o[2] > now]
        if self.kind == "slots":
            units[:] = [u for u in units if u[1] not in ended]
        else:
            units[:] = [u for u in units if u[0] + self.keep > now]

    # The store.

    def land(self, r, it):
        """The item that a request makes, or None if its condition fails."""
        R = self.rules
        if r.kind == "create":
            return r.new if it is None else None
        if it is None or "life" in R and it.life != r.life:
            return None
        if r.kind == "close":
            return it._replace(epoch=it.epoch + 1, closed=1, writes=it.writes + 1) if it.epoch == r.epoch and not it.closed else None
        if r.kind == "replace":
            return r.new if it.writes == r.writes else None
        if it.closed or it.epoch != r.epoch:
            return None
        mark = it.marks[r.proc]
        if "mark" in R and mark is not None and mark >= r.first:
            return None
        if self.barred(r, it):
            return None
        if r.bound is not None and it.a > r.bound:
            return None
        tokens = dict(it.tokens)
        if r.what == "take" and r.id is not None:
            if r.id in tokens and not (r.kind == "fold" and (r.id, tokens[r.id]) in r.gone):
                return None
        if r.what == "settle" and "token" in R and tokens.get(r.id) != r.tag:
            return None
        marks = list(it.marks)
        new = it._replace(writes=it.writes + 1)
        if r.kind == "fold":
            if "base" in R and it.base != r.base:
                return None
            for p, m in r.drop:
                if "marks seen" in R and marks[p] != m:
                    return None
                marks[p] = None
            for rid, _ in r.gone:
                tokens.pop(rid, None)
            last, units, opened = r.new[:3]
            a = it.a if "raised" in R else 0
            new = new._replace(base=it.base + 1, last=last, units=units, open=opened, a=a, log=tuple(e for e in it.log if e not in r.new[3]))
            if r.floor is not None:
                new = new._replace(floor=r.floor)
            if r.what in ("renew", "pause") and "epoch" in R:
                new = new._replace(epoch=it.epoch + 1)
            if r.what == "pause":
                new = new._replace(paused=1)
        elif r.what in ("take", "settle"):
            order = (r.what == "settle") if "tombstone" in R else it.writes
            e = (r.new, order, "t" if r.what == "take" else "u", r.tag, r.id, r.end)
            new = new._replace(log=tuple(sorted(new.log + (e,))))
        if r.what == "take":
            new = new._replace(a=new.a + 1)
            if r.id is not None:
                tokens[r.id] = r.tag
        if r.what == "settle":
            if "tombstone" in R:
                tokens[r.id] = -r.tag
            else:
                tokens.pop(r.id, None)
        marks[r.proc] = r.seq
        return new._replace(marks=tuple(marks), tokens=tuple(sorted(tokens.items())))

    def barred(self, r, it):
        return "floor" in self.rules and it.floor is not None and it.floor > (r.first if "floor first" in self.rules else r.t)

    # A process.

    def decide(self, s, p, call, image, form):
        """The request of a call by an image, or None if the image refuses."""
        R, now = self.rules, max(0, s.now - self.skew[p])
        seq = max(s.procs[p].seq + 1, now)
        first = call.sent[0].seq if call.sent and "first" in R else seq
        base = dict(proc=p, seq=seq, first=first, t=now, what=call.op, tag=call.tag, id=call.id)
        base |= dict(end=0, bound=None, base=0, new=None, drop=(), gone=(), floor=None, writes=0)
        end = now + H + self.blur
        if image is None:
            if call.op != "take":
                return None
            units, opened = ((now, call.tag),), ((call.id, call.tag, end),) if call.id is not None else ()
            marks = tuple(seq if i == p else None for i in range(self.nprocs))
            life = (p + 1) * 100 + seq
            new = Item(life, 0, 0, 1, 1, 0, 0, now, units, opened, (), tuple((o[0], o[1]) for o in opened), marks, None)
            return Req(kind="create", life=life, saw=0, epoch=0, **(base | {"new": new, "end": end}))
        last, units, opened = self.replay(image, now)
        mine = [o for o in opened if o[:2] == (call.id, call.tag)]
        room = self.amount - len(units)
        common = dict(life=image.life, epoch=image.epoch, saw=image.paused)
        if call.op == "take":
            if room < 1 or image.paused or any(o[0] == call.id for o in opened if call.id is not None):
                return None
            if "bound" in R:
                base["bound"] = image.a + room - 1
        if call.op in ("settle", "renew") and (not mine or "token" in R and (call.id, call.tag) not in image.tokens):
            return None
        if call.op == "renew" and "renew bound" in R:
            base["bound"] = image.a + max(0, room)
        if call.op == "close":
            return Req(kind="close", **base, **common) if not image.closed else None
        if image.closed:
            if call.op != "take":
                return None
            units = tuple(sorted(units + ((last, call.tag),)))
            opened = tuple(sorted(opened + (((call.id, call.tag, end),) if call.id is not None else ())))
            marks = tuple(seq if i == p else m for i, m in enumerate(image.marks))
            new = Item(image.life, image.epoch + 1 if "epoch kept" in R else 0, 0, 0, image.writes + 1, 0, image.paused, last, units, opened, (),
                       tuple((o[0], o[1]) for o in opened), marks, image.floor)
            return Req(kind="replace", **(base | {"new": new, "writes": image.writes, "end": end}), **common)
        if form == "append" and call.op in ("take", "settle", "empty"):
            if call.op == "take" and call.id is not None and any(t[0] == call.id for t in image.tokens):
                return self.decide(s, p, call, image, "fold")
            date = now
            if "in order" in R:
                date = max([now, image.last] + [e[0] for e in image.log])
            return Req(kind="append", **(base | {"new": date, "end": end if call.op == "take" else 0}), **common)
        # A fold, with or without an operation.
        if call.op == "take":
            units = tuple(sorted(units + ((last, call.tag),)))
            if call.id is not None:
                opened = tuple(sorted(opened + ((call.id, call.tag, end),)))
        if call.op == "renew":
            end = max(end, mine[0][2])
            opened = tuple(sorted([o for o in opened if o[1] != call.tag] + [(call.id, call.tag, end)]))
        floor = now - self.marklife
        below = floor if "below the floor" in R else floor + 1
        drop = tuple((i, m) for i, m in enumerate(image.marks) if m is not None and m < below and i != p)
        still = {(o[0], o[1]) for o in opened}
        gone = tuple(t for t in image.tokens if t not in still)
        return Req(kind="fold", **(base | {"new": (last, units, opened, image.log), "base": image.base, "drop": drop, "gone": gone,
                                          "floor": floor if drop else None, "end": end}), **common)

    def send(self, s, p, call, image, fresh, word):
        """What a process does next, by an image: states."""
        proc = s.procs[p]
        forms = ("append", "fold") if call.op == "take" and s.ops["foldtake"] else ("fold",) if call.op in ("fold", "pause", "renew") else ("append",)
        for form in forms:
            r = self.decide(s, p, call, image, form)
            if r is None and not fresh:
                continue  # it reads first, which is another event
            ops = s.ops
            if r is None:
                if call.sent and "empty" in self.rules and image is not None and not image.closed:
                    r = self.decide(s, p, Call("empty", call.tag, call.id, None, call.sent), image, "append")
                else:
                    yield self.told(s, p, call, "no", None, image), word + ", refused"
                    continue
            if form == "fold" and call.op == "take" and r.kind == "fold":
                ops = less(ops, "foldtake")
            if fresh and r.kind in ("append", "fold") and self.barred(r, image):
                if call.sent:
                    yield self.told(s, p, call, "unknown", None, image), word + ", below the floor: unknown"
                continue
            n = s._replace(procs=put(s.procs, p, Proc(image, call._replace(pending=r), r.seq)), ops=ops)
            if r.what == "settle":  # the holder stops first
                n = n._replace(ledger=put(n.ledger, call.tag - 1, n.ledger[call.tag - 1]._replace(stopped=1)))
            yield n, f"{word}, sends {r.kind} {r.what}" + (f" a<={r.bound}" if r.bound is not None else "") + f" t={r.t}"

    def told(self, s, p, call, answer, r, image):
        """The state after a call was answered. r: (what, t, end) of the attempt that landed."""
        s = s._replace(procs=put(s.procs, p, Proc(image, None, s.procs[p].seq)))
        if call.op == "take":
            l = s.ledger[call.tag - 1]
            l = l._replace(told=answer, end=r if answer == "yes" else 0)
            s = s._replace(ledger=put(s.ledger, call.tag - 1, l))
        elif call.op == "settle" and answer in ("yes", "late"):
            l = s.ledger[call.tag - 1]
            if l.settled:
                self.last = f"P{p}'s settlement is answered, too"
                raise Violated("settled")
            s = s._replace(ledger=put(s.ledger, call.tag - 1, l._replace(settled=1)))
        elif call.op == "settle" and answer == "no":
            l = s.ledger[call.tag - 1]
            if l.told == "yes" and not l.back and l.end > s.now:
                self.last = f"P{p}'s settlement finds nothing"
                raise Violated("lost")
        elif call.op == "renew" and answer == "yes":
            l = s.ledger[call.tag - 1]
            s = s._replace(ledger=put(s.ledger, call.tag - 1, l._replace(end=max(l.end, r))))
        elif call.op == "pause" and answer in ("yes", "late"):
            s = s._replace(acked=1)
        return s

    def arrive(self, s, r):
        """The state after a request was carried out, and whether its condition held."""
        new = self.land(r, s.item)
        if new is None:
            return s, False
        s = s._replace(item=new)
        if r.what == "take":
            if s.acked and not r.saw:
                self.last = f"P{r.proc}'s {r.kind} take t={r.t} lands"
                raise Violated("paused")
            l = s.ledger[r.tag - 1]
            s = s._replace(ledger=put(s.ledger, r.tag - 1, l._replace(count=l.count + 1, at=s.now)))
        elif r.what == "settle":
            l = s.ledger[r.tag - 1]
            s = s._replace(ledger=put(s.ledger, r.tag - 1, l._replace(back=l.back + 1)))
        return s, True

    def check(self, s):
        present = Counter()
        if s.item is not None:
            present = Counter(u[1] for u in self.replay(s.item, 0)[1])
        using = []
        for i, l in enumerate(s.ledger):
            if l.count > 1 or l.told == "no" and l.count or present[i + 1] > 1:
                raise Violated("twice")
            if l.back > 1:
                raise Violated("settled")
            if l.back and present[i + 1] and self.kind == "slots":
                raise Violated("kept")
            if l.told == "yes" and not l.back:
                if self.kind == "slots":
                    if l.end > s.now and not l.stopped:
                        using.append(i + 1)
                        if not present[i + 1]:
                            raise Violated("lost")
                else:
                    using.append(l.at)
                    if s.now < l.at + W and not present[i + 1]:
                        raise Violated("lost")
        if self.kind == "slots":
            most = len(using)
        else:
            most = max((sum(a <= u < a + W for u in using) for a in using), default=0)
        if most > self.amount:
            raise Violated("over")

    # What may happen: yields each next state, and how it comes about.

    def moves(self, s):
        if s.now < self.horizon:
            yield s._replace(now=s.now + 1), "tick"
        for r in sorted(set(s.limbo), key=repr):
            rest = list(s.limbo)
            rest.remove(r)
            n, ok = self.arrive(s._replace(limbo=tuple(rest)), r)
            yield n, f"late copy of P{r.proc}'s {r.kind} {r.what} t={r.t} arrives: {'lands' if ok else 'fails'}"
        if s.ops["delete"] and s.item is not None:
            gone = tuple(l._replace(count=0, told="before" if l.told in ("yes", "late") else l.told, end=0) for l in s.ledger)
            yield s._replace(item=None, ops=less(s.ops, "delete"), ledger=gone, acked=0), "the item is deleted"
        for p, proc in enumerate(s.procs):
            if proc.call is None:
                yield from self.start(s, p, proc)
            elif proc.call.pending is not None:
                yield from self.reply(s, p, proc)
            else:
                yield from self.resolve(s, p, proc)

    def start(self, s, p, proc):
        calls = []
        if s.ops["take"]:
            for rid in self.ids:
                calls.append(("take", len(s.ledger) + 1, rid))
        for op in ("settle", "renew"):
            if s.ops[op]:
                for i, l in enumerate(s.ledger):
                    if l.id is not None and l.told == "yes" and (op == "settle" or l.end > s.now - self.skew[p] and not l.stopped):
                        calls.append((op, i + 1, l.id))
        for op in ("fold", "pause", "close"):
            if s.ops[op]:
                calls.append((op, 0, None))
        for op, tag, rid in calls:
            n = s._replace(ops=less(s.ops, op))
            if op == "take":
                n = n._replace(ledger=n.ledger + (Take("", 0, 0, 0, rid, 0, 0, 0),))
            c = Call(op, tag, rid, None, ())
            word = f"P{p} {op}" + (f" {tag}" if tag else "") + (f" id={rid}" if rid is not None else "")
            if proc.image != "unknown":
                yield from self.send(n, p, c, proc.image, False, word + " by its image")
            if proc.image != s.item:
                yield from self.send(n, p, c, s.item, True, word + " by a new image")
            else:
                r = list(self.send(n, p, c, s.item, True, word))
                yield from (m for m in r if m[1].endswith("refused"))

    def answer(self, s, p, call, r, image, found):
        """The state after a process knows that a request has landed. found: by reading; nobody knows when it landed."""
        early = max(0, s.now - self.skew[p])
        by = LATE + (0 if found and "found" in self.rules else self.blur)
        late = "late" in self.rules and (early if found else s.now) > r.t + by
        if r.what == "empty":
            return self.told(s, p, call, "no", None, image), "is refused"
        return self.told(s, p, call, "late" if late else "yes", r.end, image), "late" if late else "yes"

    def reply(self, s, p, proc):
        call = proc.call
        r = call.pending
        word = f"P{p}'s {r.kind} {r.what} t={r.t}"
        n, ok = self.arrive(s, r)
        sent = call.sent + (r,)
        unsure = Proc("unknown", call._replace(pending=None, sent=sent), proc.seq)
        for copy in (0, 1) if s.ops["copy"] else (0,):
            m = n
            w = word
            if copy:
                m = n._replace(limbo=tuple(sorted(n.limbo + (r,), key=repr)), ops=less(n.ops, "copy"))
                w = word + " (a copy remains)"
            if ok:
                t, a = self.answer(m, p, call, r, n.item, False)
                yield t, f"{w} lands: {a}"
            elif n.item is not None and n.item.marks[p] in [x.seq for x in sent]:  # the condition failed because it had landed
                x = [x for x in sent if x.seq == n.item.marks[p]][0]
                t, a = self.answer(m, p, call, x, n.item, True)
                yield t, f"{w} fails, attempt t={x.t} had landed: {a}"
            elif call.op in ("fold", "close"):
                yield m._replace(procs=put(m.procs, p, Proc(n.item, None, proc.seq))), f"{w} fails"
            else:
                still = sent if "failed too" in self.rules and r.what == "take" and r.id is not None else call.sent
                yield from self.send(m, p, call._replace(pending=None, sent=still), n.item, True, f"{w} fails")
        if s.ops["lost"]:
            if ok:  # a failure's reply that is lost teaches nothing new
                yield n._replace(procs=put(n.procs, p, unsure), ops=less(n.ops, "lost")), f"{word} lands, its reply is lost"
        if s.ops["copy"]:
            m = s._replace(ops=less(s.ops, "copy"), limbo=tuple(sorted(s.limbo + (r,), key=repr)))
            yield m._replace(procs=put(m.procs, p, unsure)), f"{word} is delayed, P{p} waits no longer"

    def resolve(self, s, p, proc):
        call = proc.call
        word = f"P{p} reads"
        if call.op in ("fold", "close"):
            yield s._replace(procs=put(s.procs, p, Proc("unknown", None, proc.seq))), f"P{p} gives up its {call.op}"
            return
        yield self.told(s, p, call, "unknown", None, "unknown"), f"P{p} gives up: unknown"
        mark = s.item.marks[p] if s.item is not None else None
        for x in call.sent:
            if x.seq == mark:
                n, a = self.answer(s, p, call, x, s.item, True)
                yield n, f"{word} its mark: {a}"
                return
        yield from self.send(s, p, call, s.item, True, word + ", no mark")

    # The search.

    def explore(self):
        """Returns which property is violated, the shortest history that does so, and the number of states."""
        ops = Counter(self.ops)
        names = ("take", "settle", "renew", "fold", "foldtake", "pause", "close", "delete", "lost", "copy")
        ops = Ops(*[ops[k] for k in names])
        item = Item(1, 0, 0, 0, 0, 0, 0, 0, (), (), (), (), (None,) * self.nprocs, None)
        ledger = ()
        if self.held:  # a reservation is open already
            end = H + self.blur
            item = item._replace(a=1, units=((0, 1),), open=((0, 1, end),), tokens=((0, 1),))
            ledger = (Take("yes", 1, 0, end, 0, 0, 0, 0),)
        if self.marked:
            item = item._replace(marks=(0,) + item.marks[1:])
        start = State(0, item, (Proc(item, None, 0 if self.marked else -1),) * self.nprocs, (), ops, ledger, 0)
        todo, back = [start], {start: None}
        while todo:
            later = []
            for s in todo:
                self.doing = ""
                try:
                    for n, word in self.moves(s):
                        came = (s, word)
                        if back.setdefault(n, came) is came:
                            later.append(n)
                            self.doing = word
                            self.check(n)
                            self.doing = ""
                except Violated as v:
                    how = [self.doing or self.last]
                    while back[s]:
                        s, w = back[s]
                        how.append(w)
                    return str(v), how[::-1], len(back)
            todo = later
        return "", [], len(back)


class Ops(namedtuple("Ops", "take settle renew fold foldtake pause close delete lost copy")):
    def __getitem__(self, k):
        return getattr(self, k) if isinstance(k, str) else super().__getitem__(k)


def less(ops, k):
    return ops._replace(**{k: ops[k] - 1})


def put(t, i, x):
    return t[:i] + (x,) + t[i + 1 :]


# speed, expected, name, rules left out, scenario. ops: what may happen how often. blur: the error of clocks; process 1's is slow.
ROLL = dict(kind="rolling", procs=2, amount=2, ids=(None,), horizon=0)
SLOT = dict(kind="slots", procs=2, amount=2, ids=(0,), horizon=0)
RUNS = [
    ("quick", "H", "takes and a fold", [], ROLL | dict(ops=dict(take=3, fold=1))),
    ("slow", "H", "takes and a fold", [], ROLL | dict(procs=3, ops=dict(take=3, fold=1))),
    ("slow", "H", "takes and a fold, and a window passes", [], ROLL | dict(horizon=3, amount=1, ops=dict(take=2, fold=1))),
    ("quick", "H", "a window passes", [], ROLL | dict(amount=1, horizon=3, ops=dict(take=2))),
    ("slow", "H", "a window passes", [], ROLL | dict(amount=1, horizon=4, ops=dict(take=3))),
    ("quick", "H", "a take is written by a fold", [], ROLL | dict(ops=dict(take=3, foldtake=1))),
    ("quick", "H", "a lost reply and a late copy", [], ROLL | dict(amount=1, ops=dict(take=2, lost=1, copy=1))),
    ("slow", "H", "a lost reply, a late copy and a fold", [], ROLL | dict(ops=dict(take=2, fold=1, lost=1, copy=1))),
    ("slow", "H", "a take is written by a fold, a lost reply and a late copy", [], ROLL | dict(ops=dict(take=2, foldtake=1, fold=1, lost=1, copy=1))),
    ("quick", "H", "found late by a read", [], ROLL | dict(amount=1, horizon=3, ops=dict(take=2, lost=1))),
    ("quick", "H", "marks are dropped", [], ROLL | dict(blur=0, marklife=1, horizon=2, marked=True, ops=dict(take=1, fold=1, lost=1))),
    ("slow", "H", "marks are dropped, and a late copy", [], ROLL | dict(blur=0, marklife=1, horizon=3, ops=dict(take=1, fold=1, lost=1, copy=1))),
    ("slow", "H", "marks are dropped, two takes", [], ROLL | dict(blur=0, marklife=1, horizon=2, marked=True, ops=dict(take=2, fold=1, lost=1))),
    ("slow", "H", "marks are dropped, two folds", [], ROLL | dict(procs=3, blur=0, marklife=1, horizon=2, marked=True, ops=dict(take=1, fold=2, lost=1))),
    ("quick", "H", "a hold is renewed", [], SLOT | dict(amount=1, held=True, ids=(1,), horizon=3, ops=dict(take=1, renew=1))),
    ("slow", "H", "a hold is renewed, settled and folded", [], SLOT | dict(amount=1, held=True, ids=(1,), horizon=3, ops=dict(take=1, renew=1, settle=1, fold=1))),
    ("slow", "H", "a hold is renewed, a lost reply and a late copy", [], SLOT | dict(amount=1, held=True, ids=(1,), horizon=3, ops=dict(take=1, renew=1, lost=1, copy=1))),
    ("quick", "H", "an id is used again", [], SLOT | dict(amount=1, held=True, horizon=2, ops=dict(take=1, settle=1, fold=1))),
    ("slow", "H", "an id is used again, and a late copy", [], SLOT | dict(ops=dict(take=2, settle=1, fold=1, copy=1))),
    ("slow", "H", "reservations of a rolling limit", [], ROLL | dict(amount=1, ids=(0,), blur=0, horizon=2, ops=dict(take=2, settle=1, fold=1))),
    ("quick", "H", "two settlements, a lost reply and a late copy", [], SLOT | dict(held=True, ops=dict(take=0, settle=2, lost=1, copy=1))),
    ("slow", "H", "two settlements, a take, a lost reply and a late copy", [], SLOT | dict(held=True, ops=dict(take=1, settle=2, lost=1, copy=1))),
    ("quick", "H", "a pause and a late copy", [], ROLL | dict(ops=dict(take=1, pause=1, copy=1))),
    ("slow", "H", "a pause, a lost reply and a late copy", [], ROLL | dict(ops=dict(take=2, pause=1, lost=1, copy=1))),
    ("quick", "H", "closed and opened again", [], ROLL | dict(amount=1, ops=dict(take=2, close=1, lost=1))),
    ("slow", "H", "closed and opened again, a lost reply and a late copy", [], ROLL | dict(ops=dict(take=2, close=1, lost=1, copy=1))),
    ("quick", "H", "a deletion", [], ROLL | dict(amount=1, blur=0, horizon=1, ops=dict(take=2, delete=1))),
    ("slow", "H", "a deletion and a late copy", [], ROLL | dict(amount=1, blur=0, ops=dict(take=2, delete=1, lost=1, copy=1))),
    ("slow", "H", "a deletion, and a window passes", [], ROLL | dict(amount=1, blur=0, horizon=2, ops=dict(take=3, delete=1))),
    ("quick", "V", "no bound", ["bound"], ROLL | dict(ops=dict(take=3))),
    ("quick", "V", "a fold lowers the count", ["raised"], ROLL | dict(ops=dict(take=3, fold=1))),
    ("quick", "V", "a renewal keeps the epoch", ["epoch"], SLOT | dict(amount=1, held=True, ids=(1,), horizon=3, ops=dict(take=1, renew=1))),
    ("quick", "V", "a renewal has no bound", ["renew bound"], SLOT | dict(amount=1, held=True, ids=(1,), horizon=3, ops=dict(take=1, renew=1))),
    ("quick", "V", "a pause keeps the epoch", ["epoch"], ROLL | dict(ops=dict(take=1, pause=1))),
    ("quick", "V", "a settlement does not ask for the token", ["token"], SLOT | dict(held=True, ops=dict(settle=2))),
    ("quick", "V", "no mark", ["mark"], ROLL | dict(ops=dict(take=1, copy=1))),
    ("quick", "V", "sent again without the first attempt", ["first"], ROLL | dict(ops=dict(take=1, copy=1))),
    ("quick", "V", "no floor", ["floor"], ROLL | dict(blur=0, marklife=1, horizon=2, ops=dict(take=1, fold=1, copy=1))),
    ("quick", "V", "marks as old as the floor are dropped", ["below the floor"], ROLL | dict(blur=0, marklife=1, horizon=1, ops=dict(take=1, fold=1, copy=1))),
    ("quick", "V", "the floor is not compared with the first attempt", ["floor first"], ROLL | dict(blur=0, marklife=1, horizon=2, ops=dict(take=1, fold=1, lost=1))),
    ("quick", "V", "a fold drops a mark that is newer than its image", ["marks seen"], ROLL | dict(blur=0, marklife=1, horizon=2, marked=True, ops=dict(take=1, fold=1, lost=1))),
    ("quick", "V", "no life", ["life"], ROLL | dict(amount=1, blur=0, horizon=2, ops=dict(take=3, delete=1))),
    ("quick", "V", "a fold without base", ["base"], ROLL | dict(ops=dict(take=1, fold=2))),
    ("quick", "V", "what was carried out late is used", ["late"], ROLL | dict(amount=1, blur=0, horizon=2, ops=dict(take=2))),
    ("quick", "V", "what is found by a read may be as late as a reply", ["found"], ROLL | dict(amount=1, horizon=3, ops=dict(take=2, lost=1))),
    ("quick", "V", "units count no longer", ["margin"], ROLL | dict(amount=1, horizon=2, ops=dict(take=2))),
    ("slow", "V", "refused without a mark", ["empty"], SLOT | dict(ops=dict(take=2, settle=1, fold=1, copy=1))),
    ("slow", "V", "refused after a failure, without a mark", ["failed too"], SLOT | dict(ops=dict(take=2, settle=1, fold=1, copy=1))),
    ("quick", "V", "settlements leave no token, an id is used again", ["tombstone"], SLOT | dict(horizon=1, ops=dict(take=2, settle=1))),
    ("slow", "V", "settlements leave no token, a fold removes another's", ["tombstone"], SLOT | dict(amount=1, held=True, horizon=2, ops=dict(take=1, settle=2, fold=1))),
    ("quick", "V", "a settlement is dated before the take", ["in order"], SLOT | dict(horizon=1, ops=dict(take=1, settle=1))),
    ("quick", "V", "opened again with an epoch that was", ["epoch kept"], ROLL | dict(amount=1, ops=dict(take=2, close=1))),
]


def main():
    wrong = 0
    for speed, want, name, left, how in RUNS:
        if quick and speed != "quick" or only and not any(o in name for o in only):
            continue
        began = time.time()
        how = dict(how)
        m = Model(rules=RULES - set(left), **how)
        bad, trace, states = m.explore()
        got = "V" if bad else "H"
        wrong += got != want
        word = "ok" if got == want else "MISMATCH"
        size = f"{how['procs']} processes, {how['kind']}, amount {how['amount']}, {states} states, {time.time() - began:.0f} s"
        print(f"{word} expected={want} got={got} {name}: {bad + '; ' if bad else ''}{size}", flush=True)
        if bad:
            print("   " + "; ".join(trace))
    print("ALL AS EXPECTED" if not wrong else f"{wrong} MISMATCHES")
    sys.exit(wrong != 0)


main()
