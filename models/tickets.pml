/* tickets.pml - one line over all processes. NB buckets of capacity CAP, NP processes.
 *
 * Each process has one waiter: it asks for need[p][b] units of each bucket b, all or nothing. Units that are used come back one by one
 * (the Drain processes, weakly fair). A take that is refused leaves a ticket. Tickets have one total order: priority, then arrival (rank).
 * A take is granted only if, in each of its buckets,
 *     used + its own + the amounts of all earlier tickets in that bucket <= CAP.
 * Process 0 is the one that might starve: it asks for ever. The others take, get, and take again.
 * Slot G (= NP) holds tickets whose process is gone (crash, lost answer, lost withdrawal). They end by themselves.
 *
 * Safety: never over; the order of tickets is total. Liveness (-DLIVE): whenever process 0 waits, it gets its units some time.
 * In which buckets a refused take leaves its ticket:
 *  EACH       the rule: in each bucket that ever refused it
 *  (none)     in ONE bucket, the one that refuses it longest; it moves, and keeps its arrival
 *  ALL        in every bucket of the take
 *  STICKY     in each bucket that ever refused it longest
 *  KEEPFIT    it leaves only buckets that refuse it still, and stays where it would be granted now
 * Variants:
 *  NOTICKET   no tickets at all
 *  NEWARR     a ticket that moves gets a new arrival
 *  ARRPER     each bucket has an order of arrival of its own
 *  POLL       process 2 never leaves a ticket (Allow in a loop)
 *  PASSON     a ticket stays when its take is granted, for the next waiter of its process
 *  TCAP=k     at most k tickets per bucket, more leave none; with REPLACE the latest gives way to an earlier one
 *  PRIO       process 1 has a higher priority, for at most HIGH takes (0: for ever)
 *  SLOTS      buckets in different slots: reserved one after the other, cancelled on a refusal; with ENDPART the cancel does not put the
 *             ticket back
 *  NESTED     process 1 takes bucket 0 and waits for bucket 1 while it holds that; only then its unit of bucket 0 comes back
 *  BARGE      with NESTED: the take that is made while holding ignores tickets
 *  CRASH=n, LOSS=n, EXP=n: crashes of others, lost answers (process 0 asks again by its id), tickets of process 0 that end early
 */
#ifndef NB
#define NB 2
#endif
#ifndef NP
#define NP 3
#endif
#ifndef CAP
#define CAP 1
#endif
#ifndef CRASH
#define CRASH 0
#endif
#ifndef LOSS
#define LOSS 0
#endif
#ifndef EXP
#define EXP 0
#endif
#ifndef HIGH
#define HIGH 2
#endif
#ifndef TCAP
#define TCAP 9
#endif
#define G NP
#define NT (NP+1)
#define I(p,b) ((p)*NB+(b))
byte used[NB];
byte need[NT*NB];
bit  tk[NT*NB];                    /* a ticket lies here */
byte rank[NT];                     /* arrival: 0 none, else 1.. = position among all who have one */
#ifdef ARRPER
byte rnk[NT*NB];
#endif
bit  waits[NT];
bit  open0;                        /* 0's id is open at the store, but 0 does not know (lost reply) */
byte cr, lo, ex, hi, nest;
bit  part[NP];                     /* SLOTS: holds bucket 0, about to ask bucket 1 */
bit  had[NP];                      /* SLOTS: the part ended a ticket */
byte q, bb, sum, bad, r, kk, lt;
#ifdef TALK
#define SAY(x) printf x
#else
#define SAY(x) skip
#endif

#ifdef PRIO
#define PR(p) ((p) == 1)
#else
#define PR(p) 0
#endif
#ifdef ARRPER
#define ARR(p,b) rnk[I(p,b)]
#else
#define ARR(p,b) rank[p]
#endif
/* does x's ticket in b come before p's take? who has no arrival comes last */
#ifdef BARGE                        /* with NESTED: a take made under an open hold passes the line */
#define IN(p) !(p == 1 && nest == 1)
#else
#define IN(p) true
#endif
#define BEFORE(x,p,b) (x != p && IN(p) && tk[I(x,b)] && (PR(x) > PR(p) || (PR(x) == PR(p) && (ARR(p,b) == 0 || ARR(x,b) < ARR(p,b)))))

#if defined(PRIO)
#define MORE(p) (p != 1 || HIGH == 0 || hi < HIGH)
#elif defined(NESTED)
#define MORE(p) (p != 1 || nest < 2)
#else
#define MORE(p) true
#endif
#if defined(NESTED)
#define FREE(b) (b == 1 || nest != 1)          /* the holder gives it back only when it has had the other */
#elif defined(SLOTS)
#define FREE(b) (b == 1 || used[0] > part[0]*need[I(0,0)] + part[1]*need[I(1,0)] + part[2]*need[I(2,0)])
#else
#define FREE(b) true
#endif

inline newrank(p) {
  r = 0; q = 0; do :: q < NT -> if :: rank[q] > r -> r = rank[q] :: else fi; q++ :: else -> break od;
  rank[p] = r + 1; r = 0; q = 0
}
inline endrank(p) {
  if :: rank[p] > 0 -> r = rank[p]; q = 0;
        do :: q < NT -> if :: rank[q] > r -> rank[q]-- :: else fi; q++ :: else -> break od; rank[p] = 0; r = 0; q = 0
  :: else fi
}
#ifdef ARRPER
inline newrnk(p,b) {
  if :: rnk[I(p,b)] == 0 -> r = 0; q = 0; do :: q < NT -> if :: rnk[I(q,b)] > r -> r = rnk[I(q,b)] :: else fi; q++ :: else -> break od;
        rnk[I(p,b)] = r + 1; r = 0; q = 0 :: else fi
}
inline endrnk(p,b) {
  if :: rnk[I(p,b)] > 0 -> r = rnk[I(p,b)]; q = 0;
        do :: q < NT -> if :: rnk[I(q,b)] > r -> rnk[I(q,b)]-- :: else fi; q++ :: else -> break od; rnk[I(p,b)] = 0; r = 0; q = 0
  :: else fi
}
#endif
inline fit(p, b) {                 /* bad = 1 if bucket b refuses p's take */
  bad = 0;
  if :: need[I(p,b)] == 0 -> skip
  :: else ->
     sum = used[b] + need[I(p,b)]; q = 0;
     do :: q < NT -> if :: BEFORE(q,p,b) -> sum = sum + need[I(q,b)] :: else fi; q++ :: else -> break od; q = 0;
     if :: sum > CAP -> bad = 1 :: else fi; sum = 0
  fi
}
inline leave(p, b) {               /* a ticket in b, if there is room */
#ifdef NOTICKET
  skip
#else
  if :: tk[I(p,b)] -> skip
  :: else ->
     kk = 0; lt = 255; q = 0;
     do :: q < NT -> if :: tk[I(q,b)] -> kk++; if :: !BEFORE(q,p,b) && (lt == 255 || rank[q] > rank[lt]) -> lt = q :: else fi :: else fi; q++ :: else -> break od; q = 0;
     if :: kk < TCAP -> tk[I(p,b)] = 1
#ifdef REPLACE
     :: kk >= TCAP && lt != 255 -> tk[I(lt,b)] = 0; tk[I(p,b)] = 1
#endif
     :: else fi; kk = 0; lt = 0
  fi;
#ifdef ARRPER
  if :: tk[I(p,b)] -> newrnk(p,b) :: else fi
#endif
#endif
}
inline drop(p, b) { tk[I(p,b)] = 0;
#ifdef ARRPER
  endrnk(p,b)
#endif
}
inline dropall(p) { bb = 0; do :: bb < NB -> drop(p,bb); bb++ :: else -> break od; bb = 0; endrank(p) }

/* p's take is refused by the buckets with w[b] = 1: where do its tickets lie now? c = the one that refuses longest */
inline place(p, c, w0, w1) {
#ifdef NOTICKET
  skip
#else
  if
#ifdef POLL
  :: p == 2 -> skip
#endif
  :: else ->
     if :: rank[p] == 0 -> newrank(p) :: else fi;
#ifdef NEWARR
     if :: !tk[I(p,c)] -> endrank(p); newrank(p) :: else fi;
#endif
#if defined(ALL)
     bb = 0; do :: bb < NB -> if :: need[I(p,bb)] > 0 -> leave(p,bb) :: else fi; bb++ :: else -> break od; bb = 0
#elif defined(EACH)
     if :: w0 -> leave(p,0) :: else fi;
#if NB > 1
     if :: w1 -> leave(p,1) :: else fi;
#endif
     skip
#elif defined(STICKY)
     leave(p,c)
#elif defined(KEEPFIT)
     if :: w0 && c != 0 -> drop(p,0) :: else fi;
#if NB > 1
     if :: w1 && c != 1 -> drop(p,1) :: else fi;
#endif
     leave(p,c)
#else
     bb = 0; do :: bb < NB -> if :: bb != c -> drop(p,bb) :: else fi; bb++ :: else -> break od; bb = 0; leave(p,c)
#endif
  fi
#endif
}
/* who asks is gone; its tickets live on until they end by themselves */
inline orphan(p) {
  bb = 0; kk = 0;
  do :: bb < NB -> if :: tk[I(p,bb)] -> kk = 1 :: else fi; bb++ :: else -> break od; bb = 0;
  if
  :: kk && rank[G] == 0 ->
     do :: bb < NB -> tk[I(G,bb)] = tk[I(p,bb)]; need[I(G,bb)] = need[I(p,bb)];
#ifdef ARRPER
           rnk[I(G,bb)] = rnk[I(p,bb)]; rnk[I(p,bb)] = 0;
#endif
           tk[I(p,bb)] = 0; bb++ :: else -> break od; bb = 0;
     rank[G] = rank[p]; rank[p] = 0
  :: else -> dropall(p)
  fi; kk = 0; waits[p] = 0
}
inline granted(p) {
#ifdef PASSON
  if :: p == 0 -> dropall(p) :: else fi;
#else
  dropall(p);
#endif
  waits[p] = 0; SAY(("%d GRANTED\n", p))
}
inline over() { assert(used[0] <= CAP);
#if NB > 1
  assert(used[1] <= CAP)
#endif
}

inline ask(p) {
  w0 = 0; w1 = 0; fit(p,0); w0 = bad; bad = 0;
#if NB > 1
  fit(p,1); w1 = bad; bad = 0;
#endif
  if
  :: p == 0 && open0 -> open0 = 0; granted(p)                       /* the same id is open: the answer again */
  :: !(p == 0 && open0) && !w0 && !w1 ->
     used[0] = used[0] + need[I(p,0)];
#if NB > 1
     used[1] = used[1] + need[I(p,1)];
#endif
     over();
     if
     :: lo < LOSS -> lo++; if :: p == 0 -> open0 = 1; dropall(p) :: else -> granted(p) fi
     :: granted(p)
     fi
  :: !(p == 0 && open0) && (w0 || w1) ->
     if :: w0 -> c = 0 :: w1 -> c = 1 fi;                             /* whichever refuses longest */
     SAY(("%d refused by %d (%d%d)\n", p, c, w0, w1));
     place(p, c, w0, w1);
     if
     :: lo < LOSS && p != 0 -> lo++; orphan(p)                        /* reply lost: a plain take is not resent */
     :: skip
     fi
  fi; w0 = 0; w1 = 0; c = 0
}

proctype P(byte p) {
  bit w0, w1; byte c;
end:
  do
  :: atomic { !waits[p] && !part[p] && MORE(p) -> waits[p] = 1;
#ifdef PRIO
       if :: p == 1 && HIGH > 0 -> hi++ :: else fi;
#endif
#if defined(SIZES)
       if :: need[I(p,0)] = 1 :: p != 1 -> need[I(p,0)] = 2 :: p != 2 -> need[I(p,0)] = 3 fi
#elif defined(ALLBOTH)
       need[I(p,0)] = 1; need[I(p,1)] = 1
#elif defined(NESTED)
       if :: p == 0 -> need[I(p,0)] = 1; need[I(p,1)] = CAP
          :: p == 1 -> need[I(p,0)] = (nest == 0); need[I(p,1)] = (nest == 1)
          :: p > 1 -> need[I(p,0)] = 0; need[I(p,1)] = 1 fi
#elif NB == 1
       need[I(p,0)] = (p == 0 -> CAP : 1)
#else
       if :: p == 0 -> need[I(p,0)] = CAP; need[I(p,1)] = CAP
#ifdef MIXED
          :: p == 1 -> if :: need[I(p,0)] = 1; need[I(p,1)] = 0 :: need[I(p,0)] = 1; need[I(p,1)] = 1 fi
          :: p == 2 -> if :: need[I(p,0)] = 0; need[I(p,1)] = 1 :: need[I(p,0)] = 1; need[I(p,1)] = 1 fi
#else
          :: p == 1 -> need[I(p,0)] = 1; need[I(p,1)] = 0
          :: p >= 2 -> need[I(p,0)] = 0; need[I(p,1)] = 1
#endif
       fi
#endif
     }
#ifdef SLOTS
  :: atomic { waits[p] && !part[p] && need[I(p,0)] > 0 && need[I(p,1)] > 0 ->       /* first slot */
       fit(p,0);
       if :: bad -> place(p,0,1,0)
          :: else -> used[0] = used[0] + need[I(p,0)]; over(); had[p] = tk[I(p,0)]; drop(p,0); part[p] = 1 fi; bad = 0 }
  :: atomic { part[p] -> fit(p,1);                                                  /* second slot, then the cancel of the first */
       if :: !bad -> used[1] = used[1] + need[I(p,1)]; over(); part[p] = 0; granted(p)
          :: else -> if :: rank[p] == 0 -> newrank(p) :: else fi; leave(p,1); w1 = 1 fi; bad = 0;
       if :: w1 -> w1 = 0;
#ifndef ENDPART
         if :: had[p] -> leave(p,0) :: else fi;
#endif
         had[p] = 0; kk = need[I(p,0)]; used[0] = used[0] - (used[0] >= kk -> kk : used[0]); kk = 0; part[p] = 0
       :: else -> had[p] = 0 fi }
  :: atomic { waits[p] && !part[p] && (need[I(p,0)] == 0 || need[I(p,1)] == 0) -> ask(p) }
#else
  :: atomic { waits[p] -> ask(p);
#ifdef NESTED
       if :: p == 1 && !waits[1] -> nest++ :: else fi;                /* 1: has bucket 0; 2: has both */
#endif
     }
#endif
  :: atomic { p != 0 && waits[p] && !part[p] && cr < CRASH -> cr++; orphan(p); SAY(("%d CRASHED\n", p)) }
  od
}
proctype Drain(byte b) {
end:
  do
  :: d_step { used[b] > 0 && FREE(b) -> used[b]--; SAY(("unit of %d back\n", b));
#ifdef NESTED
       if :: b == 0 && nest == 2 -> nest = 0 :: else fi
#endif
     }
  od
}
proctype Expire() {
end:
  do
  :: d_step { rank[G] > 0 -> dropall(G); need[I(G,0)] = 0;
#if NB > 1
     need[I(G,1)] = 0
#endif
     }
  od
}
proctype Early() {                  /* 0's tickets end too early (a late renewal); it asks again with the arrival that it knows */
  byte b;
end:
  do
  :: d_step { ex < EXP && tk[I(0,0)] -> ex++; tk[I(0,0)] = 0 }
#if NB > 1
  :: d_step { ex < EXP && tk[I(0,1)] -> ex++; tk[I(0,1)] = 0 }
#endif
  od
}
init { atomic {
  byte i; i = 0; do :: i < NP -> run P(i); i++ :: else -> break od; i = 0;
  do :: i < NB -> run Drain(i); i++ :: else -> break od; i = 0;
  if :: CRASH + LOSS > 0 -> run Expire() :: else fi; if :: EXP > 0 -> run Early() :: else fi } }
#ifdef LIVE
ltl live { [] (waits[0] -> <> !waits[0]) }
#endif
