/* replay.pml - a take with an id is sent again and its answer is replayed. When do its units count? (DESIGN: promise 3.)
 *
 * Process A takes one unit with an id. The answer may be lost; A sends the take again, as often as it likes. A's call to the
 * upstream starts when A first sees an answer that allows it. B takes single units without an id, and starts at once.
 * Charge: start. T ticks of time.
 * Limit: rolling window of W ticks with L units, or with -DBUCKET a bucket of burst L units; a unit is U parts, and one part drains
 * per tick.
 * Property: starts never exceed the limit: L in any W ticks; for the bucket, a bucket that is filled by starts never overflows.
 *
 * What a replay does, if the take is open:
 *  (none)      it repeats the answer; the units count from the first execution
 *  MARGIN=m    the units count m ticks longer (bucket: the burst is m parts smaller), and an older answer is not repeated
 *  AGAIN       cancel and take in one step, always: what still counts is given back, and one unit is taken now; if it does not fit,
 *              nothing changes, and the take stays open
 *  MARGIN=m with AGAIN   as built: within m ticks the answer is repeated, later it is cancel and take in one step
 *  CREDITALL   (with AGAIN, BUCKET) the cancel gives back the whole unit, though part of it has drained
 *  MOVE        (with AGAIN) a replay is never refused: the unit is moved to now even if it counts no more
 */
#ifndef W
#define W 3
#endif
#ifndef L
#define L 1
#endif
#ifndef U
#define U 1
#endif
#ifndef T
#define T 8
#endif
#ifdef MARGIN
#define MG MARGIN
#else
#define MG 0
#endif
#define NEVER 99

byte t;
bool got;               /* A has seen an answer that allows it */
byte ea = NEVER;        /* when A's open take was executed, or decided again */
byte n, own;

#ifdef BUCKET

byte lv, drained, da;   /* parts in use; parts drained so far, and when A's take was executed */
byte starts;            /* the bucket that is filled by starts, in parts */
#define BURST (L * U - MG)
inline fits() { n = (lv + U <= BURST) }
inline enter() { lv = lv + U }
inline mark() { ea = t; da = drained }
/* own: what of A's unit has not drained yet */
inline count_own() { own = (drained - da >= U -> 0 : U - (drained - da)) }
#ifdef CREDITALL
inline again() { n = 1; own = (lv >= U -> U : lv); if :: lv - own + U <= BURST -> lv = lv - own; enter(); mark() :: else -> n = 0 fi }
#else
inline again() {
  count_own(); n = 1;
  if
#ifdef MOVE
  :: true -> lv = lv - own; enter(); mark()
#else
  :: lv - own + U <= BURST -> lv = lv - own; enter(); mark()
#endif
  :: else -> n = 0
  fi
}
#endif
inline start() { starts = starts + U; assert(starts <= L * U) }
inline tick() {
  t++;
  if :: lv > 0 -> lv--; drained++ :: else fi;
  if :: starts > 0 -> starts-- :: else fi
}

#else

byte used[T+4], st[T+4], i;   /* entries and starts, by the tick of each */
#define FROM (t + 1 >= W + MG -> (t + 1) - (W + MG) : 0)
inline sum() { n = 0; i = FROM; do :: i <= t -> n = n + used[i]; i++ :: else -> break od; i = 0 }
inline fits() { sum(); n = (n < L) }
inline enter() { used[t]++ }
inline mark() { ea = t }
inline again() {
  sum(); own = (t - ea < W + MG);
  if
#ifdef MOVE
  :: true -> used[ea] = used[ea] - own; enter(); mark(); n = 1
#else
  :: n - own < L -> used[ea] = used[ea] - own; enter(); mark(); n = 1
#endif
  :: else -> n = 0
  fi
}
inline start() {
  st[t]++; n = 0; i = (t + 1 >= W -> t + 1 - W : 0);
  do :: i <= t -> n = n + st[i]; i++ :: else -> break od; i = 0;
  assert(n <= L)
}
inline tick() { t++ }

#endif

active proctype A() {
end: do
  :: d_step { !got && ea == NEVER -> fits(); if :: n -> enter(); mark() :: else fi; n = 0 }                       /* the answer is lost */
  :: d_step { !got && ea == NEVER -> fits(); if :: n -> enter(); mark(); got = 1; start() :: else fi; n = 0; own = 0 }
  :: d_step { !got && ea != NEVER ->                                                                              /* a replay */
       if
#if defined(MARGIN)
       :: t <= ea + MG -> n = 1
#if defined(AGAIN)
       :: t > ea + MG -> again()
#else
       :: t > ea + MG -> n = 0
#endif
#elif defined(AGAIN)
       :: true -> again()
#else
       :: true -> n = 1
#endif
       fi;
       if
       :: n -> got = 1; start()
       :: else
       fi; n = 0; own = 0 }
  :: d_step { !got && ea != NEVER && t > ea + MG ->                                                 /* a replay whose answer is lost, too */
#if defined(AGAIN)
       again();
#endif
       n = 0; own = 0 }
  od
}
active proctype B() { end: do :: d_step { fits(); if :: n -> enter(); start() :: else fi; n = 0 } od }
active proctype Clock() { end: do :: d_step { t < T -> tick() } od }
