/* reserve.pml - one take from two buckets in different slots: reserve both, or cancel.
 *
 * R requests; limit A admits CA, limit B admits CB. Every message of a request (reserve, cancel, commit, on either side) may be
 * delivered late, twice, or never; whoever sends may crash. The store keeps one record per limit and request: NONE, PENDING, CHARGED
 * or RELEASED. Property: admitted <= CA and admitted <= CB.
 *
 * What the end of a PENDING hold does, and when a request counts as admitted:
 *  (none)     the end of a hold charges it (it counts as used); admitted when both are reserved
 *  NOTOMB     as built: the same, and what was cancelled is not remembered, so that a late copy of the reserve opens a hold again,
 *             which ends by itself
 *  REFUND     the end of a hold gives the units back
 *  MARGIN     (with REFUND) admitted only before the request's deadline; the store ends holds after it
 *  COMMIT     (with REFUND) admitted only after both records were charged by a commit
 *  ONESTEP    COMMIT, but admitted after the first of the two
 *  CANNOID    a cancel gives units back without looking at the record
 */
#ifndef R
#define R 3
#endif
#ifndef CA
#define CA 1
#endif
#ifndef CB
#define CB 2
#endif
#ifndef CRASH
#define CRASH 1
#endif
#define NONE 0
#define PENDING 1
#define CHARGED 2
#define RELEASED 3
#define NO 4                      /* refused: remembered too */
#define X(l,r) ((l)*R+(r))
byte cap[2];                      /* remaining */
byte rec[2*R];
byte st[R];                       /* coordinator: 0 start,1 A ok,2 both ok,3 A committed,4 done,5 gave up,6 crashed */
bit  dl[R], sres[2*R], scan[2*R], scom[2*R];
byte admitted, cr;

inline reserve(l, r) {
  if
  :: rec[X(l,r)] == NONE -> if :: cap[l] > 0 -> cap[l]--; rec[X(l,r)] = PENDING :: else -> rec[X(l,r)] = NO fi
  :: else
  fi
}
inline cancel(l, r) {
  if
#ifdef CANNOID
  :: true -> cap[l]++; rec[X(l,r)] = RELEASED
#else
  :: rec[X(l,r)] == PENDING ->
     cap[l]++;
#ifdef NOTOMB
     rec[X(l,r)] = NONE
#else
     rec[X(l,r)] = RELEASED
#endif
#ifdef COMMIT
  :: rec[X(l,r)] == CHARGED -> cap[l]++; rec[X(l,r)] = RELEASED     /* compensation, admission did not happen */
#endif
#ifndef NOTOMB
  :: rec[X(l,r)] == NONE -> rec[X(l,r)] = RELEASED                  /* overtook its reserve */
#endif
#endif
  :: else
  fi
}
inline commit(l, r) { if :: rec[X(l,r)] == PENDING -> rec[X(l,r)] = CHARGED :: else fi }
inline giveup(r) { st[r] = 5; scan[X(0,r)] = 1; scan[X(1,r)] = 1 }
inline admit(r) { st[r] = 4; admitted++; assert(admitted <= CA && admitted <= CB) }

proctype Coord(byte r) {
end:
  do
  :: d_step { st[r] == 0 -> sres[X(0,r)] = 1; reserve(0,r); if :: rec[X(0,r)] == PENDING -> st[r] = 1 :: else -> st[r] = 5 fi }
  :: d_step { st[r] == 0 -> sres[X(0,r)] = 1; reserve(0,r); giveup(r) }                 /* reply lost, gives up */
  :: d_step { st[r] == 1 -> sres[X(1,r)] = 1; reserve(1,r); if :: rec[X(1,r)] == PENDING -> st[r] = 2 :: else -> giveup(r) fi }
#ifdef COMMIT
  :: d_step { st[r] == 2 -> scom[X(0,r)] = 1; commit(0,r); if :: rec[X(0,r)] == CHARGED -> st[r] = 3 :: else -> giveup(r) fi }
  :: d_step { st[r] == 3 ->
#ifdef ONESTEP
       admit(r)
#else
       scom[X(1,r)] = 1; commit(1,r); if :: rec[X(1,r)] == CHARGED -> admit(r) :: else -> giveup(r) fi
#endif
     }
#else
#ifdef MARGIN
  :: d_step { st[r] == 2 && !dl[r] -> admit(r) }
  :: d_step { st[r] == 2 && dl[r] -> giveup(r) }
#else
  :: d_step { st[r] == 2 -> admit(r) }
#endif
#endif
  :: d_step { st[r] < 4 && !dl[r] -> dl[r] = 1 }
  :: d_step { st[r] < 4 && cr < CRASH -> cr++; st[r] = 6; dl[r] = 1 }
  od
}
active proctype Net() {
  byte l, r;
end:
  do
  :: atomic { true -> l = 0; r = 0; if :: l = 1 :: skip fi; do :: r < R-1 -> r++ :: break od;
     if
     :: d_step { sres[X(l,r)] -> reserve(l,r) }
     :: d_step { scan[X(l,r)] -> cancel(l,r) }
     :: d_step { scom[X(l,r)] -> commit(l,r) }
     :: d_step { rec[X(l,r)] == PENDING &&
#ifdef MARGIN
          dl[r] &&
#endif
          true ->
#ifdef REFUND
          cap[l]++; rec[X(l,r)] = RELEASED
#else
          rec[X(l,r)] = CHARGED
#endif
        }
     :: else
     fi; l = 0; r = 0 }
  od
}
init { atomic { byte p; cap[0] = CA; cap[1] = CB; p = 0; do :: p < R -> run Coord(p); p++ :: else -> break od; p = 0 } }
