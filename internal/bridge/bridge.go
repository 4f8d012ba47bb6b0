// Package bridge carries functions from package drawgate, which does not export them, to package
// [github.com/drawgate/drawgate/internal/answer], from which the stores of this module and package
// store call them.
//
// drawgate sets them when it is initialized, and answer, which imports drawgate, reads them after
// that. They are of type any because this package cannot import drawgate; what they are stands
// beside each, and a mistake panics when any program of this module starts.
package bridge

// The functions. Nobody else sets or calls them.
var (
	LimitSpec   any // func(drawgate.Limit) (record.Spec, error)
	Specs       any // func(*drawgate.Plan, bool) []record.Spec
	Variant     any // func(*drawgate.Plan, int64, bool) *drawgate.Plan
	Decide      any // func(*drawgate.Take, uint64, []*record.Record, bool, int64, int64) drawgate.Decision
	NewDecision any // func(*drawgate.Take, record.Verdict, []record.Ask) drawgate.Decision
	NewPlain    any // func(*drawgate.Take, record.Verdict, [record.MaxLimits]record.Result) drawgate.Decision
	Describe    any // func(*drawgate.BucketCost, *record.Record, int8, bool, int64) drawgate.Status
	TakeLocal   any // func(*cells.Buckets, *drawgate.Plan, string, drawgate.Amounts, int8) (drawgate.Decision, error)
)
