#!/usr/bin/env python3
"""told.py - a store lost acknowledged writes (a fail-over); guards tell it what their processes were admitted. (Later work.)

Every history up to DEPTH of P processes over one record and one window. What happens: a take of one unit, whose answer arrives or is
lost; a fail-over to the state after any earlier write; a flush (the record is deleted or evicted); a reset by an operator. A guard
acts on each answer that it gets.

The record: used; n, the count of writes; born, a number that is new whenever the record is created; gens, the store's generations, each
with the n at which it began; reset, the generation and n of the last reset. A guard stamps each unit that its process was admitted with
(born, generation, n) of the answer that granted it.

Rules: counter: another born: all units are lost; n is not above the last one seen: units above n are lost. lineage: another born: lost;
a generation after the unit's began at an n below the unit's: lost; at or before the last reset: forgiven.

Checked when every process has had an answer since the last loss: missing: units of all processes that the store does not know;
double: units that were told twice, or told although a reset forgave them. (A fail-over that loses the reset brings them back.)
Exit status: 1 if a run does not give the expected verdict: H holds, V violated."""
import sys
from collections import deque
def run(rule, P, depth, losses, resets, lost, markreset=True):
    # state: rec, hist (older recs for fail-over), gen, fresh ids, per process (cells, seen(born,n)), admitted since reset, heard flags
    rec0=(0,0,1,((1,0),),0)      # used,n,born,gens,reset
    s0=(rec0,(rec0,),1,1,((),)*P,((1,0),)*P,(0,0),(True,)*P,losses,resets,lost)
    q=deque([(s0,())]); seen={s0}; bad={}
    while q:
        s,tr=q.popleft()
        rec,hist,gen,nb,cells,saw,adm,heard,lo,rs,lt=s
        if all(heard):
            own=sum(len(c) for c in cells)
            if own>rec[0] and 'missing' not in bad: bad['missing']=(own-rec[0],tr)
            if lt==lost and rec[0]>(adm[0] if rec[4] or not markreset else adm[1]) and 'double' not in bad: bad['double']=(rec[0]-adm[0],tr)
        if len(bad)==2 or len(tr)>=depth: continue
        out=[]
        for p in range(P):
            for reply in ((True,) if lt==0 else (True,False)):
                u,n,b,g,r=rec
                if g[-1][0]!=gen: g=(g+((gen,n),))[-4:]      # first write of a new generation notes where it began
                n+=1; u+=1
                nrec=(u,n,b,g,r); c=list(cells)
                if not reply:
                    out.append(((nrec,hist+(nrec,),gen,nb,cells,saw,(adm[0]+1,adm[1]+1),heard,lo,rs,lt-1),f"P{p} take, reply lost")); continue
                mine=list(c[p]); told=0; keep=[]
                for (cb,cg,cn) in mine:
                    if rule=='counter':
                        if cb!=b: gone=True
                        else: gone = n<=saw[p][1] and cn>=n
                        forgiven = False
                    else:
                        forgiven = markreset and r!=0 and (cb,cg,cn)<=(b,)+r   # older than the reset
                        if cb!=b: gone=True
                        else:
                            later=[s for (x,s) in g if x>cg]; gone=bool(later) and cn>min(later)
                    if forgiven: continue
                    if gone: told+=1
                    else: keep.append((cb,g[-1][0] if rule!='counter' else cg,cn))
                keep.append((b,g[-1][0],n))
                u2,n2=u,n
                if told: n2=n+1; u2=u+told; keep+= [(b,g[-1][0],n2)]*told
                nrec=(u2,n2,b,g,r); c[p]=tuple(sorted(keep)); sw=list(saw); sw[p]=(b,n2); h=list(heard); h[p]=True
                out.append(((nrec,(hist+((u,n,b,g,r),nrec) if told else hist+(nrec,)),gen,nb,tuple(c),tuple(sw),(adm[0]+1,adm[1]+1),tuple(h),lo,rs,lt),f"P{p} take -> n={n} used={u}"+(f", tells {told}" if told else "")))
        if lo:
            for h in set(hist[:-1]):
                out.append(((h,hist[:hist.index(h)+1],gen+1,nb,cells,saw,adm,(False,)*P,lo-1,rs,lt),f"fail-over back to n={h[1]} used={h[0]}"))
            e=(0,0,nb+1,((gen,0),),0)
            out.append(((e,(e,),gen,nb+1,cells,saw,adm,(False,)*P,lo-1,rs,lt),"flush"))
        if rs:
            u,n,b,g,r=rec
            if markreset: e=(0,n+1,b,g if g[-1][0]==gen else (g+((gen,n),))[-4:],(gen,n+1)); nb2=nb
            else: nb2=nb+1; e=(0,0,nb2,((gen,0),),0)
            out.append(((e,hist+(e,) if markreset else (e,),gen,nb2,cells,saw,(0,adm[1]),(False,)*P,lo,rs-1,lt),"operator reset"))
        for st,ev in out:
            if st not in seen: seen.add(st); q.append((st,tr+(ev,)))
    return len(seen),bad
wrong=0
for rule,P,d,lo,rs,lt,mk,want in [("counter",2,7,1,0,0,True,"V"),("counter",2,6,0,1,0,False,"V"),("lineage",2,8,1,0,0,True,"H"),("lineage",2,7,2,0,0,True,"H"),
                                  ("lineage",2,7,1,1,0,True,"H"),("lineage",2,6,0,1,0,False,"V"),("lineage",3,7,1,0,0,True,"H"),("lineage",2,7,1,0,1,True,"H"),
                                  ("lineage",3,6,2,0,0,True,"H")]:
    n,bad=run(rule,P,d,lo,rs,lt,mk)
    got='V' if bad else 'H'; wrong+=got!=want
    print(f"{'ok' if got==want else 'MISMATCH'} expected={want} got={got} {rule}: {P} processes, {d} steps, losses {lo}, resets {rs}{'' if mk else ' (a reset deletes the record)'}, lost replies {lt}: {n} states",flush=True)
    for k,(v,tr) in bad.items(): print(f"   {k} {v}: "+"; ".join(tr))
print("ALL AS EXPECTED" if not wrong else f"{wrong} MISMATCHES")
sys.exit(wrong!=0)
