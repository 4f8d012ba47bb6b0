/* lease.pml - a process takes a batch ahead, spends it by itself, and may give back the rest. One key, fixed windows.
 *
 * True time is the store's clock t. A window is WLEN ticks and admits at most L. Every message ever sent may be delivered at any time,
 * any number of times, in any order, or never. Processes crash and come back with an empty memory; a process's clock may be one tick
 * slow. Property: admissions within one true window never exceed L.
 *
 * The model names messages by sequence numbers, which are not built: a batch is a reservation, and its grant does what the number does
 * (grants.pml). What the model is kept for are the rules of whoever holds the batch. Each flag leaves one out:
 *  NOID        the store executes every copy of every message
 *  RETNOID     it executes every copy of what gives back
 *  ACQNOID     it executes every copy of what takes: that only wastes capacity
 *  RESPDUP     the process adds the units of every copy of an answer
 *  LATERET     what is given back is credited to whatever window is current
 *  NOMARGIN    the holder spends until its own clock, which may be slow, says that the window has ended
 *  LEASEROLL   units of a batch may be spent in a later window
 *  RECLAIM     the store gives back the batch of a process that it believes to be gone
 *  INCRESET    a process that comes back resets the memory of messages
 *  CREDITFIRST the process keeps its units until the store has confirmed that it has them back
 */
#ifndef L
#define L 3
#endif
#ifndef BATCH
#define BATCH 2
#endif
#define N 2
#define WLEN 2
#define TMAX 3                       /* ticks 0..3 = windows 0,1 */
#ifndef MAXSEQ
#define MAXSEQ 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define K 2                          /* incarnations per instance */
#define IX(i,k,s) ((i)*K*MAXSEQ + (k)*MAXSEQ + (s) - 1)
#define SZ (N*K*MAXSEQ)
#define ACQ 1
#define RET 2

byte mty[SZ], mam[SZ], mwn[SZ];      /* requests ever sent: type (0 = none), amount, window */
byte rok[SZ], rgr[SZ], rwn[SZ];      /* replies ever sent: present, granted, window */
byte t, swin;
byte avail = L;
byte admitted[2];
byte sInc[N], sSeq[N], sGr[N], sWn[N];
byte out[N];                         /* the store's book of what is out on lease in this window */
byte crashes;
bit slow[N];
byte inc[N], seq[N], pend[N];        /* instance state; pend = id waited for, 0 = none */
byte tok[N], twin[N];                /* lease: tokens, window */

hidden byte g, x;

inline execute(i, k, s) {
  x = IX(i,k,s);
  if :: (t / WLEN) != swin -> swin = t / WLEN; avail = L; out[0] = 0; out[1] = 0 :: else fi;
  if
#ifdef INCRESET
  :: k != sInc[i] -> sInc[i] = k; sSeq[i] = 0; sGr[i] = 0; sWn[i] = 0
#else
  :: k > sInc[i]  -> sInc[i] = k; sSeq[i] = 0; sGr[i] = 0; sWn[i] = 0
#endif
  :: else
  fi;
  if
  :: k < sInc[i] -> skip                        /* fenced: message of a dead incarnation */
  :: else ->
    if
#if defined(NOID)
    :: true ->
#elif defined(RETNOID)
    :: (s > sSeq[i] || mty[x] == RET) ->
#elif defined(ACQNOID)
    :: (s > sSeq[i] || mty[x] == ACQ) ->
#else
    :: s > sSeq[i] ->
#endif
      g = 0;
      if
      :: mty[x] == ACQ ->
         g = (avail >= mam[x] -> mam[x] : avail);
         avail = avail - g; out[i] = out[i] + g
      :: else ->
         if
#ifdef LATERET
         :: true -> avail = avail + mam[x]
#else
         :: mwn[x] == swin -> avail = avail + mam[x]; out[i] = (out[i] >= mam[x] -> out[i] - mam[x] : 0)
#endif
         :: else
         fi
      fi;
      if :: avail > 2*L -> avail = 2*L :: else fi;           /* keeps broken variants finite */
      if :: s > sSeq[i] -> sSeq[i] = s; sGr[i] = g; sWn[i] = swin :: else fi;
      rok[x] = 1; rgr[x] = g; rwn[x] = swin
    :: s == sSeq[i] -> rok[x] = 1; rgr[x] = sGr[i]; rwn[x] = sWn[i]   /* replay the answer */
    :: else                                                  /* older than remembered: drop */
    fi
  fi;
  g = 0; x = 0
}

inline send(i, ty, am, wn) {
  seq[i]++; pend[i] = seq[i]; x = IX(i,inc[i],seq[i]);
  mty[x] = ty; mam[x] = am; mwn[x] = wn; x = 0
}

inline gotreply(i, s) {
  x = IX(i,inc[i],s);
  if
  :: mty[x] == ACQ ->
#ifdef LEASEROLL
     tok[i] = tok[i] + rgr[x]; twin[i] = 0
#else
     if :: tok[i] > 0 && twin[i] == rwn[x] -> tok[i] = tok[i] + rgr[x] :: else -> tok[i] = rgr[x] fi;
     twin[i] = (tok[i] > 0 -> rwn[x] : 0)
#endif
  :: else ->
#ifdef CREDITFIRST
     tok[i] = (tok[i] >= mam[x] -> tok[i] - mam[x] : 0)
#else
     skip
#endif
  fi;
  if :: tok[i] > 2*L -> tok[i] = 2*L :: else fi;
  pend[i] = 0; x = 0
}

proctype Inst(byte i) {
  byte s;
end:
  do
  :: d_step { pend[i] == 0 && tok[i] == 0 && seq[i] < MAXSEQ -> send(i, ACQ, BATCH, 0) }
  :: d_step { pend[i] == 0 && tok[i] > 0 && seq[i] < MAXSEQ -> send(i, RET, tok[i], twin[i]);
#ifndef CREDITFIRST
       tok[i] = 0; twin[i] = 0
#endif
     }
#ifdef RESPDUP
  :: atomic { true -> s = 1; do :: s < MAXSEQ -> s++ :: break od;
       if :: rok[IX(i,inc[i],s)] -> gotreply(i, s) :: else fi; s = 0 }
#else
  :: d_step { pend[i] != 0 && rok[IX(i,inc[i],pend[i])] -> gotreply(i, pend[i]) }
#endif
  :: d_step { tok[i] > 0 &&
#if defined(LEASEROLL)
       true
#elif defined(NOMARGIN)
       (t - slow[i]) < (twin[i] + 1) * WLEN      /* trusts its own clock to the last tick */
#else
       (t - slow[i]) + 1 < (twin[i] + 1) * WLEN  /* stops one tick (= maximal clock error) early */
#endif
       -> tok[i]--; admitted[t / WLEN]++;
#ifdef BOUND
       assert(admitted[t / WLEN] <= BOUND)
#else
       assert(admitted[t / WLEN] <= L)
#endif
     }
  /* a lease whose window has certainly ended is dropped (burnt) */
#ifndef LEASEROLL
  :: d_step { tok[i] > 0 && twin[i] < t / WLEN && !((t - slow[i]) < (twin[i] + 1) * WLEN) -> tok[i] = 0; twin[i] = 0 }
#endif
  :: d_step { crashes < CRASHES && inc[i] + 1 < K -> crashes++; tok[i] = 0; twin[i] = 0; pend[i] = 0; seq[i] = 0; inc[i]++ }
  od
}

active proctype Store() {
  byte i, k, s;
end:
  do
  :: atomic {
       true ->
       i = 0; k = 0; s = 1;
       if :: i = 1 :: skip fi; if :: k = 1 :: skip fi;
       do :: s < MAXSEQ -> s++ :: break od;
       if :: d_step { mty[IX(i,k,s)] != 0 -> execute(i,k,s) } :: else fi;
       i = 0; k = 0; s = 0 }
#ifdef RECLAIM
  :: d_step { out[0] > 0 && swin == t/WLEN -> avail = avail + out[0]; out[0] = 0 }
#endif
  :: d_step { t < TMAX -> t++ }
  od
}

init {
  atomic {
    if :: slow[0] = 0 :: slow[0] = 1 fi;
    if :: slow[1] = 0 :: slow[1] = 1 fi;
    run Inst(0); run Inst(1)
  }
}
