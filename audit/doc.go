// Package audit counts again what was asked of an upstream, from the ledgers of the processes that
// asked it, and judges each of the upstream's limits.
//
// A ledger is a folder of files with one JSON object per line ([Line]): what was reserved before a
// call was sent, how the call ended, and what was not granted. Package audit/ledgerfile writes
// them, and [Replay] reads them:
//
//	report, err := audit.Replay(ctx, []string{"/var/lib/drawgate/ledger"}, quotas, nil)
//
// When a call counts at the upstream is not known. It lies between the instant at which it was sent
// and the one at which it was answered. What it counts is not always known either. So for every
// window there is a least and a most that can have been used in it: a limit is [Over] if the least
// exceeds it, [Possible] if only the most does, and [Within] otherwise.
//
// This package is an independent check: it imports nothing but the standard library, so it shares
// no arithmetic with the limiter, nor with the simulator that the limiter is tested against.
package audit
