package drawgate

import "github.com/drawgate/drawgate/store"

// The contract of stores is in package store. These names are for the time of moving it there.
type (
	Amounts    = store.Amounts
	BucketCost = store.BucketCost
	Take       = store.Take
	Op         = store.Op
	Settlement = store.Settlement
	Outcome    = store.Outcome
	Fault      = store.Fault
	Store      = store.Store
	Resetter   = store.Resetter
	Lister     = store.Lister
	Journal    = store.Journal
	Pinger     = store.Pinger
	Timed      = store.Timed
	Watcher    = store.Watcher
)

const (
	SendLife     = store.SendLife
	MaxReason    = store.MaxReason
	KeepEstimate = store.KeepEstimate

	OpSettle  = store.OpSettle
	OpCancel  = store.OpCancel
	OpRenew   = store.OpRenew
	OpCharge  = store.OpCharge
	OpRefund  = store.OpRefund
	OpPause   = store.OpPause
	OpUnpause = store.OpUnpause

	FaultTransient     = store.FaultTransient
	FaultConfiguration = store.FaultConfiguration
	FaultBucket        = store.FaultBucket
	FaultPermanent     = store.FaultPermanent
)
