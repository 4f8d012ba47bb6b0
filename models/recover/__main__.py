"""recover - a store lost acknowledged writes (a fail-over, an eviction, an empty server); guards
charge again what their processes were admitted, and open their reservations again.
models/README.md states the rules.

Every state of small worlds is explored, with all rules, and with each rule left out. A run holds
(H) or is violated (V).

  units.py         plain units over one record, in every kind of loss; migrations; a program of the version before
  reservations.py  reservations, slots and leases
  buckets.py       takes over two records, of one server and of two
  expiry.py        how long units, records, epochs and recovered grants live; takes that are booked ahead
  pauses.py        pauses, and their ends

Exit status: 1 if a verdict is not the expected one. With --quick only the runs that take a moment.
"""

import sys

import buckets
import expiry
import pauses
import reservations
import search
import units

for worlds in (units, reservations, buckets, expiry, pauses):
    worlds.run()
print("ALL AS EXPECTED" if not search.wrong else f"{search.wrong} MISMATCHES")
sys.exit(search.wrong != 0)
