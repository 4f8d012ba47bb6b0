package audit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Options holds what [Replay] can do without. The zero value is ready to use.
type Options struct {
	// ClockError is by how much the clock of a host can differ from the upstream's.
	ClockError time.Duration
	// Windows is how limits of the window Rolling count: Rolling, Aligned, or "" for both, each on
	// its own.
	Windows Window
}

// callKey names a call within its run.
type callKey struct {
	upstream string
	call     uint64
	granted  int64
}

// call is a call whose end has not been read yet.
type call struct {
	at, granted             int64
	upstream, owner, policy string
	model                   string
	number                  uint64
	reserved                []Amount
	over                    bool
}

// group is calls that the same limits count.
type group struct{ owner, policy, model string }

// replayer counts again.
type replayer struct {
	opts   Options
	err    int64 // of a clock, in nanoseconds
	quotas []Quota
	groups map[group][]*series
	strict bool // the limits are those of policies: each call should be of one of them
	shared map[seriesKey]*series
	queue  []*call // that have not ended, and perhaps some that have, in the order of their lines
	now    int64
	report Report
}

type seriesKey struct {
	quota, limit int
	owner, model string
}

// maxRefusals is how many refusals a report lists.
const maxRefusals = 1000

// Replay reads ledgers, which are files or folders with files, and judges the limits. opts may be
// nil. The error is about a limit, or a file that cannot be read; damage inside a file is in the
// report.
//
// It needs memory for the calls of a limit's longest rolling window, and for those that run at the
// same time as the longest call, but not for whole ledgers.
func Replay(ctx context.Context, paths []string, quotas []Quota, opts *Options) (*Report, error) {
	r, err := newReplayer(quotas, opts)
	if err != nil {
		return nil, err
	}
	waiting, err := runs(paths)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(waiting)
	defer func() {
		for _, run := range all {
			run.close()
		}
	}()
	if err := r.merge(ctx, waiting); err != nil {
		return nil, err
	}
	return r.end(all), nil
}

func newReplayer(quotas []Quota, opts *Options) (*replayer, error) {
	r := &replayer{
		groups: map[group][]*series{}, shared: map[seriesKey]*series{},
		report: Report{Runs: []Run{}, By: map[string]int64{}, Limits: []LimitReport{}},
	}
	if opts != nil {
		r.opts = *opts
	}
	r.err = max(0, r.opts.ClockError.Nanoseconds())
	switch r.opts.Windows {
	case "", Rolling, Aligned:
	default:
		return nil, errors.New("audit: windows are rolling or aligned, not " + string(r.opts.Windows))
	}
	var errs []error
	for _, q := range quotas {
		q, err := q.check()
		errs = append(errs, err)
		q.Limits = r.windows(q.Limits)
		r.strict = r.strict || q.Policy != ""
		r.quotas = append(r.quotas, q)
	}
	return r, errors.Join(errs...)
}

// windows returns limits that count in the windows of the options.
func (r *replayer) windows(list []Limit) (all []Limit) {
	for _, l := range list {
		if l.Window != Rolling || r.opts.Windows != Aligned {
			all = append(all, l)
		}
		if l.Window == Rolling && r.opts.Windows != Rolling {
			l.Window = Aligned
			all = append(all, l)
		}
	}
	return all
}

// cancelEvery is after how many lines a context is looked at.
const cancelEvery = 4096

// merge reads all runs by the time of their lines.
func (r *replayer) merge(ctx context.Context, waiting []*run) error {
	var reading []*run
	for n := 0; len(waiting)+len(reading) > 0; n++ {
		if n%cancelEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		first := -1
		for i, run := range reading {
			if first < 0 || run.line.At < reading[first].line.At {
				first = i
			}
		}
		if len(waiting) > 0 && (first < 0 || waiting[0].parts[0].header.At <= reading[first].line.At) {
			run := waiting[0]
			waiting = waiting[1:]
			if ok, err := run.next(); err != nil {
				return err
			} else if ok {
				reading = append(reading, run)
			}
			continue
		}
		run := reading[first]
		r.line(run)
		ok, err := run.next()
		if err != nil {
			return err
		}
		if !ok {
			r.killed(run)
			reading = slices.Delete(reading, first, first+1)
		}
	}
	return nil
}

// line counts one line.
func (r *replayer) line(run *run) {
	l := &run.line
	r.report.Lines++
	r.now = max(r.now, l.At)
	k := callKey{l.Upstream, l.Call, l.Granted}
	switch l.Event {
	case Reserved:
		if run.open[k] != nil {
			r.report.Damaged++ // there are no two such calls
			return
		}
		c := &call{
			at: l.At, granted: l.Granted, upstream: l.Upstream, owner: l.Owner, policy: l.Policy, model: l.Model,
			number: l.Call, reserved: slices.Clone(l.Reserved),
		}
		r.report.Calls++
		run.open[k] = c
		r.queue = append(r.queue, c)
	case Settled, Refunded:
		c := run.open[k]
		switch {
		case c != nil:
			delete(run.open, k)
			r.ended(run, c, l)
			c.over = true
		case run.info.FirstLine == 1 || l.Granted >= run.info.From.UnixNano():
			r.report.Orphans++ // otherwise it was reserved in a file that was deleted since
		}
	case Refused:
		r.report.Refused++
		r.report.By[cmp.Or(l.Limit, l.Outcome)]++
	case Opened, Asked, Alive, Closed, Unheard:
	}
}

// frontier is before all instants of calls whose end is read later.
func (r *replayer) frontier() int64 {
	for len(r.queue) > 0 && r.queue[0].over {
		r.queue[0] = nil
		r.queue = r.queue[1:]
	}
	if len(r.queue) > 0 {
		return min(r.now, r.queue[0].at) - r.err
	}
	return r.now - r.err
}

// ended counts a call that has ended.
func (r *replayer) ended(run *run, c *call, l *Line) {
	if l.Event == Refunded || l.Sent == 0 {
		r.report.Refunded++
		return
	}
	r.report.Settled++
	if !plausible(c, l) {
		r.report.Damaged++
		return
	}
	if refused(l) {
		r.report.RefusalCount++
		if len(r.report.Refusals) < maxRefusals {
			r.report.Refusals = append(r.report.Refusals, Refusal{
				At: time.Unix(0, l.Sent), Run: run.info.ID, Call: c.number, Upstream: c.upstream, Owner: c.owner,
				Model:  c.model,
				Status: l.Status, Meaning: l.Meaning, Unit: l.Unit,
			})
		}
	}
	frontier := r.frontier()
	late := false
	for _, s := range r.series(c) {
		late = s.add(r.widen(sent(s.limit, c, l)), frontier) || late
	}
	if late {
		r.report.Late++
	}
}

// killed counts the calls that a run did not end. It ended at most [AliveEvery] after its last
// line.
func (r *replayer) killed(run *run) {
	last := max(run.info.Until.UnixNano(), 0)
	if !run.info.Closed {
		last += AliveEvery * int64(time.Second/1)
	}
	for _, c := range run.open {
		c.over = true
		r.report.Unended++
	}
	frontier := r.frontier()
	for _, c := range run.open {
		frontier = min(frontier, c.at-r.err)
	}
	late := false
	for _, c := range run.open {
		for _, s := range r.series(c) {
			late = s.add(r.widen(unended(s.limit, c, last)), frontier) || late
		}
	}
	if late {
		r.report.Late++
	}
	run.open = nil
}

// widen allows for the error of clocks.
func (r *replayer) widen(u use) use {
	u.a, u.b, u.c, u.ended = u.a-r.err, u.b+r.err, u.c+r.err, u.ended+r.err
	return u
}

// series returns what counts a call.
func (r *replayer) series(c *call) []*series {
	g := group{c.owner, c.policy, c.model}
	list, ok := r.groups[g]
	if !ok {
		list = r.find(g)
		r.groups[g] = list
	}
	if len(list) == 0 {
		r.report.Uncounted++
		if r.strict && !r.known(g) {
			r.report.Unknown++
		}
	}
	return list
}

// known reports whether a quota is for such calls, though it may have no limits.
func (r *replayer) known(g group) bool {
	return slices.ContainsFunc(r.quotas, func(q Quota) bool { return q.fits(g.policy, g.model) })
}

// find returns the series of the first quota that is for such calls.
func (r *replayer) find(g group) (list []*series) {
	for i := range r.quotas {
		q := &r.quotas[i]
		if !q.fits(g.policy, g.model) {
			continue
		}
		model := g.model
		if q.Shared {
			model = ""
		}
		for j := range q.Limits {
			k := seriesKey{i, j, g.owner, model}
			if r.shared[k] == nil {
				r.shared[k] = newSeries(&q.Limits[j], g.owner, q.Name, model)
			}
			list = append(list, r.shared[k])
		}
		return list
	}
	return nil
}

// end returns the report.
func (r *replayer) end(all []*run) *Report {
	p := &r.report
	for _, run := range all {
		run.end()
		p.Runs = append(p.Runs, run.info)
		p.Gaps = append(p.Gaps, run.gaps...)
		p.Missing += run.lost
		p.Damaged += run.bad
		if p.From.IsZero() || run.info.From.Before(p.From) {
			p.From = run.info.From
		}
		if run.info.Until.After(p.Until) {
			p.Until = run.info.Until
		}
	}
	for _, s := range r.shared {
		p.Limits = append(p.Limits, s.report(r.now))
	}
	slices.SortFunc(p.Limits, func(a, b LimitReport) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Limit, b.Limit), -cmp.Compare(a.Window, b.Window))
	})
	p.judge()
	return p
}
