/* grants.pml - ids that are used again. ONE id and K logical takes of it, one after the other or (CONC) at once, by processes that crash.
 *
 * Limit: concurrency CAP. Every message (take, settle, cancel, renew, of any logical take) may be delivered late, twice, in another
 * order, or never. The store remembers OPEN reservations only. A holder holds from the answer that allows it until it settles, or knows
 * that its hold is over (it stops before the store ends it).
 * Properties: never more than CAP holders at once; a reservation has one holder.
 *
 * Who chooses the grant, the number of a logical take:
 *  IDONLY     nobody: messages name the id only
 *  STORE      the store, at the take; an open id replays its grant to whoever takes it
 *  (none)     as built: the taker, a random number per logical take, the same whenever it is sent again; an open id is replayed to the
 *             same number only, another number is refused
 *  ADOPT      another number takes over the open reservation: its old holder does not know
 *  VOID       as built: a take is void once its process has stopped waiting for it (not_after)
 *  GHOST      also asserts that no reservation opens whose taker does not want it any more (holds with VOID only)
 */
#ifndef K
#define K 3
#endif
#ifndef CAP
#define CAP 1
#endif
#define FRESH 0
#define ASKED 1
#define HOLDS 2
#define DONE 3
byte st[K];            /* logical take k: fresh, asked (no answer yet), holds, done */
byte g[K];             /* the grant it was told (store's number), 0 none; else its own number k+1 */
bit  stake[K], sset[K], srep[K];     /* messages ever sent; a positive answer is under way */
byte rg[K];            /* grant in that answer */
byte og[CAP+1], on;    /* open: grant of the one id (one reservation per id), on = 0/1 */
byte held;             /* open holds of OTHER ids: may take a slot when one is free */
byte next = 1;         /* store's numbers */
byte holders, extra;
bit  stop[K];          /* k's process stopped waiting for an answer: not_after has passed */
bit  late[K];          /* k's hold is over by its own clock: it must stop */

inline take(k) {       /* the store executes one copy of k's take */
  if
#ifdef VOID
  :: stop[k] -> skip
#endif
  :: else ->
    if
    :: on == 0 && held < CAP && next < 9 ->
       on = 1;
#if defined(STORE)
       og[0] = next; next++;
#elif defined(IDONLY)
       og[0] = 1;
#else
       og[0] = k+1;
#endif
#ifdef GHOST
       assert(st[k] == ASKED);
#endif
       srep[k] = 1; rg[k] = og[0]
#if defined(STORE) || defined(IDONLY)
    :: on == 1 -> srep[k] = 1; rg[k] = og[0]
#else
    :: on == 1 && og[0] == k+1 -> srep[k] = 1; rg[k] = og[0]
#ifdef ADOPT
    :: on == 1 && og[0] != k+1 -> og[0] = k+1; srep[k] = 1; rg[k] = og[0]
#endif
#endif
    :: else
    fi
  fi
}
#ifdef IDONLY
#define MATCH(k) (on == 1)
#else
#define MATCH(k) (on == 1 && og[0] == g[k])
#endif
inline settle(k) { if :: MATCH(k) -> on = 0; og[0] = 0 :: else fi }
inline count() { holders = held; extra = 0; do :: extra < K -> if :: st[extra] == HOLDS -> holders++ :: else fi; extra++ :: else -> break od; extra = 0;
  assert(holders <= CAP); holders = 0 }

proctype T(byte k) {
end:
  do
  :: d_step { st[k] == FRESH &&
#ifndef CONC
       (k == 0 || st[k-1] == DONE) &&       /* the caller uses the id again only when it is through with it */
#endif
       true -> st[k] = ASKED; stake[k] = 1;
#if !defined(STORE) && !defined(IDONLY)
       g[k] = k+1
#endif
     }
  :: d_step { st[k] == ASKED && srep[k] && !stop[k] -> st[k] = HOLDS; g[k] = rg[k]; late[k] = 0; count() }
  :: d_step { st[k] == ASKED -> stop[k] = 1; st[k] = DONE; sset[k] = (g[k] != 0) }          /* gives up: owes a cancel, if it can name it */
  :: d_step { st[k] == HOLDS -> st[k] = DONE; sset[k] = 1; stop[k] = 1 }                     /* settles, or stops at its own end of the hold */
  od
}
active proctype Net() {
  byte k;
end:
  do
  :: atomic { true -> k = 0; do :: k < K-1 -> k++ :: break od;
     if
     :: d_step { stake[k] -> take(k) }
     :: d_step { sset[k] -> settle(k) }
     :: else
     fi; k = 0 }
  :: d_step { on == 0 && held < CAP -> held++; count() }                                     /* another id's caller */
  :: d_step { held > 0 -> held-- }
  /* the hold ends at the store: only after every holder of it has stopped (margin, see lease.pml); who gets that answer later sees that
     it is too late, because it counts the hold from its own send */
  :: d_step { on == 1 && !(st[0] == HOLDS && g[0] == og[0]) && !(st[1] == HOLDS && g[1] == og[0]) && (K < 3 || !(st[K-1] == HOLDS && g[K-1] == og[0])) -> 
       k = 0; do :: k < K -> if :: st[k] == ASKED && rg[k] == og[0] -> srep[k] = 0; rg[k] = 0 :: else fi; k++ :: else -> break od; k = 0;
       on = 0; og[0] = 0 }
  od
}
init { atomic { byte p; p = 0; do :: p < K -> run T(p); p++ :: else -> break od; p = 0 } }
