// Package ledgerfile writes what an outbound.Client does into a ledger, which package audit reads:
// a line before a call is sent, and one when it has ended.
//
//	ledger, err := ledgerfile.Open("/var/lib/drawgate/ledger", nil)
//	client := outbound.New(quota, &outbound.Options{Observer: ledger.Observer()})
//
// Each line is written at once, by one write, so that a process that is killed loses none. That is
// why there is no queue such as package internal/outbox: the line must be in the file before the
// call is sent. Lines are synchronized with the disk every second: a machine that crashes can lose
// the last second. If a line cannot be written, as on a full disk, the call goes on, and the ledger
// has a gap that an audit sees: each line has a number, also one that is missing.
//
// There are no prompts, answers or secrets in a ledger; it has the names of a gateway's keys and
// teams.
package ledgerfile
