"""Takes over two buckets: two records of one server, or one on each of two.

Plain takes, and reservations that are settled or cancelled in both. On one server a fail-over loses
writes of both records, up to one instant; an eviction loses one record. On two servers each loses
its own.

Each bucket's part of a take is stamped, judged and recovered by itself: its own mark, its own
answer, its own `gone`. Checked per record as in reservations.py.
"""

from collections import namedtuple

from search import World, check, last_mark, noted, present

Rec = namedtuple("Rec", "n epochs counts open done")  # as in reservations.py
Part = namedtuple("Part", "stamps settled lost mark sent")
Take = namedtuple("Take", "owner used parts")  # used: None while open
Server = namedtuple("Server", "gen recs hist")  # hist: of all its records together
State = namedtuple("State", "servers gens time takes heard left")  # heard: per process and record


class Buckets(World):
    EVENTS = "plain reserve settle loss evict lost".split()
    OPTIONS = dict(servers=1)

    def __str__(self):
        return f"{self.procs} processes, {self.servers} server{'s'[: self.servers - 1]}"

    def start(self, left):
        recs = (None,) * (3 - self.servers)
        servers = tuple(Server(k + 1, recs, (recs,)) for k in range(self.servers))
        return State(servers, self.servers, 0, (), ((True, True),) * self.procs, left)

    # The store. A bucket is 0 or 1.

    def where(self, bucket):
        return (0, bucket) if self.servers == 1 else (bucket, 0)

    def record(self, s, bucket):
        server, at = self.where(bucket)
        return s.servers[server].recs[at]

    def epochs(self, s, bucket):
        rec, server = self.record(s, bucket), s.servers[self.where(bucket)[0]]
        return noted(rec.epochs, server.gen, rec.n) if rec else ()

    def written(self, s, changes, time):
        """The state after one call has written records at an instant; changes: by bucket."""
        servers = list(s.servers)
        for bucket, change in changes.items():
            server, at = self.where(bucket)
            old, gen = servers[server].recs[at], servers[server].gen
            epochs = noted(old.epochs if old else (), gen, old.n if old else None, time)
            rec = (old or Rec(0, (), (), (), ()))._replace(n=time, epochs=epochs, **change)
            recs = servers[server].recs
            servers[server] = servers[server]._replace(recs=recs[:at] + (rec,) + recs[at + 1 :])
        servers = [v if v == s.servers[k] else v._replace(hist=v.hist + (v.recs,)) for k, v in enumerate(servers)]
        return s._replace(servers=tuple(servers), time=time)

    def stamp(self, s, bucket):
        rec = self.record(s, bucket)
        return (last_mark(self.epochs(s, bucket)), rec.n if rec else 0)

    def change(self, s, k, bucket, op):
        """What an operation on a take's part changes in its record: None if it is gone, {} if it was done before."""
        rec = self.record(s, bucket) or Rec(0, (), (), (), ())
        used = 1 if s.takes[k].used is None else s.takes[k].used
        if op in ("open", "charge"):
            if k in rec.done or op == "open" and ~k in rec.done:
                return {}
            if op == "open":
                return {"open": tuple(sorted(rec.open + (k,))), "done": rec.done + (~k,)}
        elif k not in rec.open:
            return None
        done = tuple(d for d in rec.done if d != ~k)
        if op == "charge" or ~k in rec.done:
            done += (k,)
        return {
            "counts": tuple(sorted(rec.counts + (k,) * used)),
            "open": tuple(o for o in rec.open if o != k),
            "done": done,
        }

    # A process.

    def owes(self, s, k, bucket):
        take, part = s.takes[k], s.takes[k].parts[bucket]
        epochs = self.epochs(s, bucket)
        took = present(part.stamps, epochs)
        if take.used is None:
            return None if took else "open"
        if present(part.settled, epochs):
            return None
        return "settle" if took else "charge" if take.used or part.sent else None

    def hears(self, s, i, buckets=(0, 1)):
        for bucket in buckets:
            for k, take in enumerate(s.takes):
                if take.owner == i:
                    s = self.part(s, k, bucket, lost=self.owes(s, k, bucket), mark=last_mark(self.epochs(s, bucket)))
        if "apart" in self.without:  # a take is recovered as a whole
            for k, take in enumerate(s.takes):
                lost = next((p.lost for p in take.parts if p.lost), None)
                for bucket in buckets if take.owner == i else ():
                    s = self.part(s, k, bucket, lost=lost)
        heard = tuple(h or b in buckets for b, h in enumerate(s.heard[i]))
        return s._replace(heard=s.heard[:i] + (heard,) + s.heard[i + 1 :])

    def part(self, s, k, bucket, **changes):
        parts = s.takes[k].parts
        parts = parts[:bucket] + (parts[bucket]._replace(**changes),) + parts[bucket + 1 :]
        return s._replace(takes=s.takes[:k] + (s.takes[k]._replace(parts=parts),) + s.takes[k + 1 :])

    def moves(self, s):
        for i in range(self.procs):
            for bucket in (0, 1):
                yield self.hears(s, i, (bucket,)), f"P{i} hears of bucket {bucket}", None
            if not any(p.lost for t in s.takes if t.owner == i for p in t.parts):
                yield from self.admits(s, i)
        for k, take in enumerate(s.takes):
            if take.used is None and self.left(s, "settle"):
                for used in (0, 1):
                    yield from self.settles(self.spend(s, "settle"), k, used)
            for bucket in (0, 1):
                if take.parts[bucket].lost:
                    yield from self.recovers(s, k, bucket)
        yield from self.losses(s)

    def admits(self, s, i):
        for event, used in (("plain", 1), ("reserve", None)):
            if not self.left(s, event):
                continue
            k = len(s.takes)
            recs = [self.record(s, b) or Rec(0, (), (), (), ()) for b in (0, 1)]
            if event == "plain":
                changes = {b: {"counts": tuple(sorted(r.counts + (k,)))} for b, r in enumerate(recs)}
            else:
                changes = {b: {"open": tuple(sorted(r.open + (k,)))} for b, r in enumerate(recs)}
            t = self.written(self.spend(s, event), changes, s.time + 1)
            stamps = [(self.stamp(t, b),) for b in (0, 1)]
            parts = tuple(Part(st, st if used else (), None, None, False) for st in stamps)
            t = t._replace(takes=t.takes + (Take(i, used, parts),))
            yield self.hears(t, i), f"P{i} {'takes' if used else 'reserves'} r{k}", None

    def settles(self, s, k, used):
        i, word = s.takes[k].owner, f"P{s.takes[k].owner} settles r{k} with {used}"
        s = s._replace(takes=s.takes[:k] + (s.takes[k]._replace(used=used),) + s.takes[k + 1 :])
        sent = [b for b in (0, 1) if not s.takes[k].parts[b].lost]  # the others are recovered with what was used
        changes = {b: self.change(s, k, b, "settle") for b in sent}
        t = self.written(s, {b: c for b, c in changes.items() if c is not None}, s.time + 1)
        gone = {b: c is None for b, c in changes.items()}
        if "gone apart" in self.without:  # one word for all: not gone, if one of them was open
            gone = {b: all(gone.values()) for b in sent}
        u = t
        for b in sent:
            if not gone[b] or present(t.takes[k].parts[b].stamps, self.epochs(t, b)):
                u = self.part(u, k, b, settled=(self.stamp(t, b),))
        yield self.hears(u, i), word + "".join(f", gone in {b}" for b in sent if gone[b]), None
        if self.left(s, "lost"):
            for unanswered in [sent] if self.servers == 1 else [[b] for b in sent]:
                v = self.spend(u, "lost")
                for b in unanswered:
                    v = self.part(v, k, b, settled=(), lost="settle", mark=last_mark(self.epochs(v, b)))
                yield v, word + f", the answer for {unanswered} is lost", None

    def recovers(self, s, k, b):
        take, part = s.takes[k], s.takes[k].parts[b]
        word = f"P{take.owner} recovers r{k} in bucket {b}: {part.lost}"
        if part.lost in ("open", "charge") and part.mark != last_mark(self.epochs(s, b)):
            yield self.hears(s, take.owner, (b,)), word + ": not carried out", None
            return
        op = "charge" if part.lost == "open" and take.used is not None else part.lost
        change = self.change(s, k, b, op)
        if change is None:
            t = s
            if present(part.stamps, self.epochs(s, b)):
                t = self.part(s, k, b, settled=part.settled[:1] + (self.stamp(s, b),))
            yield self.hears(t, take.owner, (b,)), word + ": gone", None
            return
        t = self.written(s, {b: change}, s.time + 1) if change else s
        stamp = self.stamp(t, b)
        done = {"settled": part.settled[:1] + (stamp,)} if op in ("settle", "charge") else {}
        if op in ("open", "charge"):
            done["stamps"] = part.stamps[:1] + (stamp,)
        if op == "open":
            done["sent"] = True
        yield self.hears(self.part(t, k, b, **done), take.owner, (b,)), word, None
        if self.left(s, "lost"):
            yield self.spend(self.part(t, k, b, sent=True), "lost"), word + ", the answer is lost", None

    def losses(self, s):
        deaf = ((False, False),) * self.procs
        if self.left(s, "loss"):
            for v, server in enumerate(s.servers):
                for h in dict.fromkeys(server.hist):
                    one = Server(s.gens + 1, h, server.hist[: server.hist.index(h) + 1])
                    t = self.spend(s, "loss")._replace(gens=s.gens + 1, heard=deaf)
                    t = t._replace(servers=s.servers[:v] + (one,) + s.servers[v + 1 :])
                    yield t, f"server {v} fails over to {[r.n if r else 'nothing' for r in h]}", None
        if self.left(s, "evict"):
            for b in (0, 1):
                if self.record(s, b):
                    v, at = self.where(b)
                    recs = s.servers[v].recs
                    recs = recs[:at] + (None,) + recs[at + 1 :]
                    one = s.servers[v]._replace(recs=recs, hist=(recs,))
                    t = self.spend(s, "evict")._replace(
                        servers=s.servers[:v] + (one,) + s.servers[v + 1 :], heard=deaf
                    )
                    yield t, f"the record of bucket {b} is evicted", None

    def broken(self, s):
        quiet = all(map(all, s.heard)) and not any(p.lost for t in s.takes for p in t.parts)
        for b in (0, 1):
            rec = self.record(s, b) or Rec(0, (), (), (), ())
            for k, take in enumerate(s.takes):
                n = rec.counts.count(k) + rec.open.count(k)
                if n > 1:
                    return "double"
                if quiet and take.used is None and k not in rec.open:
                    return "missing"
                if quiet and take.used and not n:
                    return "missing"
                if quiet and take.used == 0 and n:
                    return "settled, and open"
        return None


def run():
    for servers in (1, 2):
        for procs, budget in [
            (1, dict(plain=1, reserve=1, settle=1, loss=1, evict=1)),
            (2, dict(plain=2, loss=1, evict=1)),
            (2, dict(plain=2, loss=1, lost=2)),
            (2, dict(reserve=1, settle=1, loss=1, evict=1)),
            (1, dict(reserve=1, settle=1, loss=2, evict=1, lost=1)),
            (1, dict(plain=1, reserve=1, settle=1, loss=1, lost=1)),
        ]:
            check(
                "two buckets",
                "H",
                Buckets(procs=procs, servers=servers),
                budget,
                quick=servers == 2 and "reserve" in budget and procs == 2,
            )
        for rule, want, budget in [
            ("apart", "double", dict(plain=1, loss=1, evict=1)),
            ("gone apart", "missing", dict(plain=1, reserve=1, settle=1, evict=1)),
        ]:
            check(f"two buckets without {rule}", f"V {want}", Buckets(rule, servers=servers), budget, quick=True)
