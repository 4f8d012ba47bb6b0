package api

import "time"

// ProgressType is the media type that a take with wait_ms accepts in order to be told its progress.
// The answer is then lines of JSON: a [ProgressLine] when the take begins to wait, and then when
// something has changed, at most once a second; and last its [Answer], whose Error is set if the
// take could not be decided. A take that fails before it waits is answered with a [Problem].
const ProgressType = "application/x-ndjson"

// ProgressLine is one line of an answer of [ProgressType].
type ProgressLine struct {
	Progress *Progress `json:"progress"`
}

// ReasonHeld is the reason of a [Progress] or a [WaitingLine] whose limit has enough left if open
// reservations are settled or cancelled. The other reasons are [ReasonLimited], [ReasonPaused],
// [ReasonUnavailable], and [ReasonQueued] until the first of the line was refused.
const ReasonHeld Reason = "held"

// Progress says what a take waits for.
type Progress struct {
	// in the line of its bucket in this server process: 1 is the first
	Place int `json:"place"`
	// in front of the first of that line: of each other process those who come to its front next. 0
	// where the store keeps no line
	Others int    `json:"others,omitempty"`
	Reason Reason `json:"reason"`          // what holds up the line
	Policy string `json:"policy"`          // of the bucket for which it waits
	Limit  string `json:"limit,omitempty"` // that refuses the first of the line
	Pause  string `json:"pause,omitempty"` // the reason of the pause, for people
	// how long it takes at least until it passes, as far as that is known; 0: perhaps at any time
	EstimateMS int64 `json:"estimate_ms"`
	WaitedMS   int64 `json:"waited_ms"`
}

// MaxLines is the largest number of lines in a [WaitingAnswer].
const MaxLines = 1000

// WaitingAnswer describes the takes that wait in this server process: a line for each bucket, the
// longest first.
type WaitingAnswer struct {
	At    time.Time     `json:"at"` // this server's time
	Lines []WaitingLine `json:"lines"`
}

// WaitingLine describes the takes that wait for one bucket.
type WaitingLine struct {
	Policy    string `json:"policy"`
	Tenant    string `json:"tenant,omitempty"`
	Key       string `json:"key"`
	Waiting   int    `json:"waiting"`    // how many
	LongestMS int64  `json:"longest_ms"` // the longest-waiting one has been waiting
	NextMS    int64  `json:"next_ms"`    // until the first one tries again; 0: it is doing so
	Reason    Reason `json:"reason"`     // what refused the first one, as in [Progress]
	Limit     string `json:"limit,omitempty"`

	// of the line of all processes, as far as the store keeps one, when the first one tried last

	// who waits in it: of each process those who come to its front next, 128 in all
	Tickets  int   `json:"tickets,omitempty"`
	Others   int   `json:"others,omitempty"`    // of these, in front of this process's first one
	OldestMS int64 `json:"oldest_ms,omitempty"` // the one that has waited longest has been waiting
}
