// Package credit keeps what was credited to prepaid budgets: limits whose window never ends
// (calendar: total), to whose amount credits are added, for one key.
//
// Credits are kept in the store that has the limits, with nothing but its takes. An account is a
// bucket of a policy of our own. A credit is one take of it, in one step: of the limit that adds
// up what was credited, and of a limit that has the name of the credit's id, and the amount of the
// credit. The latter can be granted once: whoever sends a credit again is refused, and what is in
// that limit tells for which amount it was sent first. A total is never forgotten, so neither is
// this.
//
// Who gave a credit, when and why is in the name of another bucket, which is noted first. It is
// shown only if the account has the credit.
package credit
