package main

// retired lists the names that no declaration may have, by folder ("" means everywhere), with what
// replaced them. They were private words, which a newcomer had to learn. A name that is plain
// English elsewhere is listed for the folder where it was not.
var retired = map[string]map[string]string{
	"": {
		"away":      "unavailable, outage or down",
		"beside":    "shadow or extra",
		"carried":   "override",
		"crowded":   "checkArraySizes",
		"endRun":    "FlushRun",
		"glossary":  "planCache",
		"goOn":      "continueRun",
		"hangUp":    "closeConn",
		"keeper":    "loop",
		"lasting":   "permanent",
		"owed":      "pending",
		"owes":      "pending",
		"patient":   "extendDeadlines",
		"powers":    "capabilities",
		"strangers": "others",
		"teller":    "replayer",
		"told":      "outcome, or what was reported",
	},
	".": {
		"carry": "Apply", "rouse": "WakeAll", "soonest": "EarliestRetry", "strange": "MustPersist",
	},
	"internal/cells": {
		"full": "lockedRecord", "home": "owner", "isFull": "isRecord or hasRoom", "lean": "gcra", "leanOf": "gcraOf",
		"word": "tat",
	},
	"internal/ledger": ledgerNames,
	"rls": {
		"carriedPolicy": "OverridePolicy", "does": "action",
	},
	"server": {
		"exact": "checkFieldNames", "given": "issued", "givenUp": "mayHaveSpent",
	},
	"store/guard": ledgerNames,
	"store/sqlitestore": {
		"unknown": "repairMark", "metaUnknown": "metaRepairMark",
	},
}

// ledgerNames were the guard's.
var ledgerNames = map[string]string{
	"bill": "charge", "book": "ledger", "due": "pending", "former": "assumePriorUse", "page": "entry",
	"terms": "FallbackPlan", "wide": "unbounded",
}

// retiredFiles lists the file names that no file may have, by folder.
var retiredFiles = map[string][]string{
	"rls":               {"carried.go"},
	"server":            {"crowded.go", "exact.go"},
	"store/guard":       {"book.go", "teller.go", "former.go", "terms.go", "powers.go", "keeper.go"},
	"store/sqlitestore": {"unknown.go"},
}
