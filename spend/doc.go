// Package spend counts what calls to LLM providers used and cost: per day, team, key, upstream and
// model, in the store that has the limits.
//
// What is counted is a bucket, a meter, of a policy whose limits nobody reaches: [Policy]. A call
// takes from its meter in the same step in which it takes from its limits, and settles it with
// them. So whatever holds for limits holds for meters: each call counts once, in any store, whether
// answers are lost, processes killed, or the store away for a while. A call whose process died
// counts as the most that it can have used.
//
// A meter is of one day, and lives for a year after it. The day's meters are found by an index: see
// [store.Indexer].
package spend
