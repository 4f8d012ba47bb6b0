package audit

import "time"

// Verdict says whether a limit was exceeded.
type Verdict string

// The verdicts.
const (
	Within   Verdict = "within"        // in no window can more have been used than it allows
	Possible Verdict = "possibly over" // in some window more may have been used, but that is not certain
	Over     Verdict = "over"          // in some window more was used, or asked for
)

// Report is what [Replay] found.
type Report struct {
	// Verdict is the worst of the limits. It is at least Possible if something is missing: see
	// [Report.Gaps], Damaged, Orphans, Late and Unknown.
	Verdict Verdict `json:"verdict"`

	From  time.Time `json:"from,omitzero"`  // of the first line
	Until time.Time `json:"until,omitzero"` // of the last line
	Runs  []Run     `json:"runs"`           // of processes, by when they began
	Lines int64     `json:"lines"`

	// Calls were granted. They are those that were settled, were refunded, or did not end: their
	// process was killed, or is running.
	Calls    int64 `json:"calls"`
	Settled  int64 `json:"settled"`
	Refunded int64 `json:"refunded"`
	Unended  int64 `json:"unended"`
	// Refused were not granted, and nothing was sent. By says why: by the limit, as policy/limit.
	Refused int64            `json:"refused"`
	By      map[string]int64 `json:"refused_by,omitempty"`
	// Uncounted calls are of models that no limit here counts.
	Uncounted int64 `json:"uncounted"`
	// Refusals are answers of the upstream that it has no quota left; those beyond 1000 are only
	// counted.
	Refusals     []Refusal `json:"refusals,omitempty"`
	RefusalCount int64     `json:"refusal_count"`

	// What is missing, so that the most that was used is not known:
	Gaps    []Gap `json:"gaps,omitempty"`
	Missing int64 `json:"missing"` // lines, of all gaps
	Damaged int64 `json:"damaged"` // lines that could not be read; the last one of a killed process is none
	Orphans int64 `json:"orphans"` // ends of calls whose reservation is in no file
	Late    int64 `json:"late"`    // calls that were dated before others that had ended: a clock was set back

	// Unknown calls are those of Uncounted that none of the policies here has granted, if quotas
	// name policies: limits were switched off, or a policy has another name now. They may have used
	// what these limits count.
	Unknown int64 `json:"unknown"`

	Limits []LimitReport `json:"limits"`
}

// Run is one run of a process.
type Run struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	Lines int64     `json:"lines"`
	// FirstLine is the number of the first line that is there. It is not 1 if older files were
	// deleted.
	FirstLine uint64 `json:"first_line"`
	Closed    bool   `json:"closed"` // it ended as it should; otherwise it was killed, or is running
}

// Gap is lines of a run that are in no file.
type Gap struct {
	Run   string    `json:"run"`
	After uint64    `json:"after"` // the number of the last line before it
	Lines int64     `json:"lines"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}

// Refusal is a call that the upstream refused because of a quota.
type Refusal struct {
	At       time.Time `json:"at"` // when it was sent
	Run      string    `json:"run"`
	Call     uint64    `json:"call"`
	Upstream string    `json:"upstream"`
	Owner    string    `json:"owner"`
	Model    string    `json:"model"`
	Status   int       `json:"status"`
	Meaning  string    `json:"meaning"`        // such as "minute"
	Unit     string    `json:"unit,omitempty"` // that ran out, if the upstream said so
}

// LimitReport is what was used of one limit, by those who share it.
type LimitReport struct {
	Quota   string  `json:"quota"`
	Owner   string  `json:"owner"`
	Model   string  `json:"model,omitempty"` // "" if models share the limit
	Limit   string  `json:"limit"`
	Counts  string  `json:"counts"` // the limit in words
	Unit    string  `json:"unit"`
	Window  Window  `json:"window"`
	Amount  int64   `json:"amount"`
	Burst   int64   `json:"burst,omitempty"`
	Verdict Verdict `json:"verdict"`

	// Most and Least are of the worst windows: the most that can have been used in one, and the
	// least. Of a bucket they are levels.
	Most  Peak `json:"most"`
	Least Peak `json:"least"`
	// Over lists when the most that can have been used exceeded the limit; at most 1000 episodes.
	Over            []Episode `json:"over,omitempty"`
	Episodes        int64     `json:"episodes"`
	CertainEpisodes int64     `json:"certain_episodes"`

	// Windows are whole windows that follow each other from the first use on. Allowed is what the
	// limit admits in them, and Used what was used. Of a bucket Windows is 0, and Allowed what it
	// could have let pass.
	Windows int64   `json:"windows"`
	Allowed int64   `json:"allowed"`
	Used    int64   `json:"used"`
	Share   float64 `json:"share"` // Used ÷ Allowed
	Total   int64   `json:"total"` // used in all
	// Refused counts calls that the upstream refused, perhaps because of this limit. Unexplained
	// are those at which there was room by the ledgers: somebody else uses the quota too, or it is
	// smaller than assumed.
	Refused     int64 `json:"refused"`
	Unexplained int64 `json:"unexplained"`
}

// Peak is what was used in one window.
type Peak struct {
	Units int64     `json:"units"`
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Episode is a time in which windows follow each other that are over, or possibly over.
type Episode struct {
	From  time.Time `json:"from"`  // the start of the first one
	Until time.Time `json:"until"` // the end of the last one
	Least int64     `json:"least"` // in the worst one
	Most  int64     `json:"most"`  // in the worst one
	// the least exceeds the limit, or the upstream refused a call and named this limit
	Certain bool `json:"certain"`
	Refused bool `json:"refused"` // the upstream refused a call
}

// incomplete reports whether something is missing.
func (r *Report) incomplete() bool { return r.Missing+r.Damaged+r.Orphans+r.Late+r.Unknown > 0 }

// judge sets the verdict.
func (r *Report) judge() {
	r.Verdict = Within
	if r.incomplete() {
		r.Verdict = Possible
	}
	for i := range r.Limits {
		switch v := r.Limits[i].Verdict; {
		case v == Over:
			r.Verdict = Over
		case v == Possible && r.Verdict == Within:
			r.Verdict = Possible
		}
	}
}
