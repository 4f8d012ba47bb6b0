/* slots.pml - one take from two buckets in different slots of a cluster (store/redisstore/spread.go). reserve.pml shows when units
 * are spent; this one shows from when they count, and what several sendings of one take may do to each other.
 *
 * Without SENDINGS: R plain takes over time. Units that bucket A counts are free again W ticks later. A take reserves in A a lease,
 * which ends H ticks later unless it is settled; its units count from its end, or from the settlement. Then it takes in B, which is
 * the decision, and settles. Property: within W ticks, at most CA takes are decided.
 *  (none)   as built: it is decided only while the lease is open
 *  AGES     what is reserved in A counts from the reservation
 *  LATE     it may be decided after the lease has ended
 *
 * With SENDINGS: two sendings of one take with an id, and another taker. Each bucket admits CAP. Property: once a sending was
 * answered with yes, the take is open in both buckets until the taker ends it.
 *  (none)   as built: each sending reserves under an id of its own, and cancels only that; then it takes under the caller's id, in A
 *           and then in B. If one of these fails, it leaves the rest to the taker, who learns that the outcome is unknown
 *  SHARED   a sending reserves under the caller's id, and cancels what it has reserved if B refuses
 *  UNDO     a sending that could not take in B cancels what it took in A
 */
#ifndef SENDINGS
#ifndef R
#define R 3
#endif
#ifndef CA
#define CA 1
#endif
#define W 2
#define H 2
#define END 6
#ifdef LATE
#define INTIME(r) true
#else
#define INTIME(r) (now < at[r] + H)
#endif
byte now, left = CA;               /* units of A that nothing counts */
byte st[R];                        /* 0 start, 1 reserved, 2 decided, 3 done, 4 gave up or crashed */
byte at[R], decided[R];            /* when it was reserved; when decided, + 1 */
byte from[R];                      /* from when its unit in A counts, + 1; 0: it does not, or is held */
bit held[R];

proctype Coord(byte r) {
  byte k, n;
end:
  do
  :: d_step { st[r] == 0 && left > 0 -> left--; at[r] = now; st[r] = 1;
#ifdef AGES
       from[r] = now + 1
#else
       held[r] = 1
#endif
     }
  :: d_step { st[r] == 1 && INTIME(r) -> st[r] = 2; decided[r] = now + 1; n = 0; k = 0;
       do :: k < R -> if :: decided[k] > 0 && now + 1 < decided[k] + W -> n++ :: else fi; k++ :: else -> break od;
       assert(n <= CA); k = 0; n = 0 }
  :: d_step { st[r] == 2 -> st[r] = 3; if :: held[r] -> held[r] = 0; from[r] = now + 1 :: else fi }
  :: d_step { st[r] == 1 -> st[r] = 4 }          /* it dies, or B's answer is lost */
  :: d_step { st[r] == 2 -> st[r] = 4 }          /* the settlement is lost */
  od
}
active proctype Clock() {
  byte k;
end:
  do
  :: d_step { now < END -> now++; k = 0;
       do
       :: k < R ->
          if :: held[k] && now >= at[k] + H -> held[k] = 0; from[k] = at[k] + H + 1 :: else fi;
          if :: from[k] > 0 && now + 1 >= from[k] + W -> from[k] = 0; left++ :: else fi;
          k++
       :: else -> break
       od; k = 0 }
  od
}
init { atomic { byte p; p = 0; do :: p < R -> run Coord(p); p++ :: else -> break od; p = 0 } }
#else
#ifndef CAP
#define CAP 2
#endif
#define S 2
#define FREE(b) (used[b] + open[b] + lease[b] + lease[2+(b)] < CAP)
bit open[2];                       /* under the caller's id */
bit lease[2*S];                    /* of bucket b by sending s: 2s + b */
byte used[2];                      /* by others */
byte st[S];                        /* 0 start, 1 reserved in A, 2 in both, 3 refused, 4 to take in A, 5 taken in A, 6 to take in B, 7 yes, 8 no, 9 unknown, 10 undoing */
bit mine[S];                       /* SHARED: it opened A */
bit yes;

proctype Sending(byte s) {
end:
  do
  :: d_step { st[s] == 0 && open[0] && open[1] -> st[s] = 7; yes = 1 }                 /* it is open already: replayed */
#ifdef SHARED
  :: d_step { st[s] == 0 && open[0] && !open[1] -> st[s] = 1 }
  :: d_step { st[s] == 0 && !open[0] -> if :: FREE(0) -> open[0] = 1; mine[s] = 1; st[s] = 1 :: else -> st[s] = 8 fi }
  :: d_step { st[s] == 1 -> if :: open[1] -> st[s] = 7 :: !open[1] && FREE(1) -> open[1] = 1; st[s] = 7 :: else -> st[s] = 3 fi;
       if :: st[s] == 7 -> yes = 1; assert(open[0] && open[1]) :: else fi }
  :: d_step { st[s] == 3 -> if :: mine[s] -> open[0] = 0; assert(!yes) :: else fi; st[s] = 8 }
#else
  :: d_step { st[s] == 0 && !open[0] && !open[1] -> if :: FREE(0) -> lease[2*s] = 1; st[s] = 1 :: else -> st[s] = 8 fi }
  :: d_step { st[s] == 1 -> if :: FREE(1) -> lease[2*s+1] = 1; st[s] = 2 :: else -> st[s] = 3 fi }
  :: d_step { st[s] == 3 -> lease[2*s] = 0; st[s] = 8 }
  :: d_step { st[s] == 2 -> lease[2*s] = 0; st[s] = 4 }
  :: d_step { st[s] == 4 -> if :: open[0] || FREE(0) -> open[0] = 1; st[s] = 5 :: else -> st[s] = 3 fi }
  :: d_step { st[s] == 5 -> lease[2*s+1] = 0; st[s] = 6 }
  :: d_step { st[s] == 6 -> if :: open[1] || FREE(1) -> open[1] = 1; st[s] = 7; yes = 1; assert(open[0])
#ifdef UNDO
       :: else -> st[s] = 10
#else
       :: else -> st[s] = 9
#endif
       fi }
  :: d_step { st[s] == 10 -> open[0] = 0; assert(!yes); st[s] = 8 }
#endif
  :: d_step { st[s] < 7 -> st[s] = 9; used[0] = used[0] + lease[2*s]; used[1] = used[1] + lease[2*s+1];
       lease[2*s] = 0; lease[2*s+1] = 0 }        /* it dies; its leases end, and count as used */
  od
}
active proctype Others() {
end:
  do
  :: d_step { FREE(0) -> used[0]++ }
  :: d_step { FREE(1) -> used[1]++ }
  :: d_step { used[0] > 0 -> used[0]-- }
  :: d_step { used[1] > 0 -> used[1]-- }
  od
}
init { atomic { run Sending(0); run Sending(1) } }
#endif
