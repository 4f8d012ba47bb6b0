package incident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/outbox"
	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/outbound"
)

// Options holds what a [Recorder] can do without. The zero value is ready to use.
type Options struct {
	// File is where incidents are appended, as JSON Lines; "" keeps them in memory only. It has
	// mode 0600. At 8 MiB it is renamed to have the suffix .1, and replaces the one that has it.
	File     string
	Instance string       // names this process in the incidents; "" means the host's name
	Logger   *slog.Logger // gets each incident at once, and failures of the file; nil discards
	// Report is told each new incident, after it was logged, by a goroutine of the Recorder: the
	// next one waits until it returns. If 100 wait, further ones are neither logged nor reported,
	// but listed and written; how many is logged. It must not change the incident. nil: nobody is
	// told.
	Report func(*api.Incident)
	// Status returns the state of an upstream's quota, for [api.Incident.Now]. nil, and an error:
	// the incident is kept without it.
	Status func(ctx context.Context, upstream, policy string) (*api.StatusAnswer, error)
}

const (
	// refusals of calls that were granted so soon after the first one are the same incident.
	mergeTime  = 5 * time.Minute
	saveEvery  = 10 * time.Second // how soon a count that has changed is in the file
	statusTime = 2 * time.Second
	closeTime  = 5 * time.Second // for what is not written yet
	warnEvery  = time.Minute
)

// Recorder makes incidents of what an [outbound.Client] tells its observer. One Recorder serves any
// number of clients. It is safe for concurrent use.
//
// It remembers the latest 512 calls to each upstream and the latest 100 incidents.
type Recorder struct {
	opts  Options
	file  *file // nil: none
	rings rings

	mu      sync.Mutex
	records []*record        // guarded by mu: the oldest first, at most api.MaxIncidents
	open    map[kind]*record // guarded by mu: the latest of each kind, which may go on
	lost    int64            // guarded by mu: forgotten before they were logged and written

	failed sampler.Sampler // failures of the file
	lower  sampler.Sampler // limits that upstreams named

	reports *outbox.Outbox[*record] // to the log and Options.Report
	save    chan struct{}           // capacity 1: there is something to write
	stop    chan struct{}           // closed by Close
	closing sync.Once
	saved   chan struct{} // closed when everything was written, or could not be
}

// kind says which refusals can be one incident.
type kind struct{ upstream, model, meaning string }

// record is an incident and what became of it. All is guarded by Recorder.mu.
type record struct {
	incident api.Incident
	end      time.Time // refusals of calls that were granted before are the same incident
	lost     bool      // it was counted in Recorder.lost
	checked  bool      // Options.Status was asked
	written  int64     // the count in the file; 0: it is not there
	at       time.Time // when it was written
	over     bool      // its end was logged
}

// New returns a Recorder. opts may be nil. It must be closed. The latest incidents of the file are
// listed again. A file that cannot be used is logged, and tried again with each incident.
func New(opts *Options) *Recorder {
	r := &Recorder{
		rings: rings{of: map[string]*ring{}}, open: map[kind]*record{},
		save: make(chan struct{}, 1), stop: make(chan struct{}), saved: make(chan struct{}),
	}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.Instance == "" {
		r.opts.Instance, _ = os.Hostname()
	}
	if r.opts.Logger == nil {
		r.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if r.opts.File != "" {
		r.file = &file{r.opts.File, maxFile}
		r.load()
	}
	r.reports = outbox.New(api.MaxIncidents, r.report)
	go r.saving()
	return r
}

// load lists what the file has.
func (r *Recorder) load() {
	if err := usable(r.opts.File); err != nil {
		r.opts.Logger.Error("incidents cannot be kept in their file; they are in the log, and in memory", "error", err)
		return
	}
	list, _, err := Read(r.opts.File) // what is skipped was cut off
	if errors.Is(err, fs.ErrNotExist) {
		return
	} else if err != nil {
		r.opts.Logger.Error("earlier incidents cannot be listed", "error", err)
	}
	for _, in := range list[max(0, len(list)-api.MaxIncidents):] {
		r.records = append(r.records, &record{incident: in, checked: true, written: in.Count, over: true})
	}
}

// Observer returns an observer of calls that reports to r: for [outbound.Options]. Together with
// others: see [outbound.Join].
func (r *Recorder) Observer() *outbound.Observer {
	return &outbound.Observer{
		Granted: func(e *outbound.Event) { r.rings.ring(e.Upstream, e.Granted).begin(e) },
		Called:  r.called,
		Lowered: r.lowered,
	}
}

// lowered logs that an upstream has named a smaller limit than the configured one. It is no
// incident: nothing was refused, but callers may wonder why they wait.
func (r *Recorder) lowered(l *outbound.Lowered) {
	skipped, ok := r.lower.Pass(time.Now(), warnEvery, 8)
	if !ok {
		return
	}
	r.opts.Logger.Warn(fmt.Sprintf("%s says that its limit is %d %s, and limit %s/%s has %d: takes obey what it says; set the limit's amount to %[2]d",
		short(l.Upstream), l.Amount, unit(l.Limit.Unit), l.Policy, l.Limit.Name, l.Limit.Amount),
		"upstream", short(l.Upstream), "model", short(l.Model), "policy", l.Policy, "limit", l.Limit.Name, "amount",
		l.Limit.Amount, "obeyed", l.Amount, "not_logged", skipped)
}

// called notes the end of a call.
func (r *Recorder) called(e *outbound.Event) {
	if e.Granted.IsZero() { // it was not granted
		return
	}
	ring := r.rings.ring(e.Upstream, e.Granted)
	underWay := ring.end(e)
	if e.Outcome == outbound.Refused {
		r.refused(e, ring, underWay)
	}
}

// refused makes an incident, or counts the refusal for one that goes on.
func (r *Recorder) refused(e *outbound.Event, ring *ring, underWay int) {
	now := time.Now()
	k := kind{short(e.Upstream), short(e.Model), meaningOf(e)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.open[k]; rec != nil && e.Granted.Before(rec.end) {
		rec.again(e, now)
		return
	}
	in := made(e, k.meaning, r.opts.Instance, ring, underWay, now)
	rec := &record{incident: *in, end: later(now.Add(mergeTime), in.Until)}
	r.forget(now)
	r.records, r.open[k] = append(r.records, rec), rec
	if _, err := r.reports.Add(rec); err != nil {
		r.lose(rec)
	}
	select {
	case r.save <- struct{}{}:
	default: // it is awake already
	}
}

// lose counts an incident that was not reported, or forgotten before it was written. r.mu is held.
func (r *Recorder) lose(rec *record) {
	if !rec.lost {
		rec.lost = true
		r.lost++
	}
}

// again counts another refusal. The file has it a little later.
func (rec *record) again(e *outbound.Event, now time.Time) {
	in := &rec.incident
	in.Count++
	in.Last = now.UTC()
	in.NotPaused = in.NotPaused || e.Err != nil
	if in.Until != nil {
		in.Until = new(later(*in.Until, until(e, now)))
	}
	rec.end = later(rec.end, in.Until)
}

// later returns the later one of two instants, the second of which may be missing.
func later(a time.Time, b *time.Time) time.Time {
	if b != nil && b.After(a) {
		return *b
	}
	return a
}

// forget makes room for a record. r.mu is held.
func (r *Recorder) forget(now time.Time) {
	for k, rec := range r.open {
		if now.After(rec.end.Add(keepTime)) {
			delete(r.open, k)
		}
	}
	if len(r.records) < api.MaxIncidents {
		return
	}
	first := r.records[0]
	if r.file != nil && first.written != first.incident.Count {
		r.lose(first)
	}
	for k, rec := range r.open {
		if rec == first {
			delete(r.open, k)
		}
	}
	r.records = slices.Delete(r.records, 0, 1)
}

// report logs and reports an incident.
func (r *Recorder) report(_ context.Context, rec *record) error {
	r.mu.Lock()
	in := rec.incident
	r.mu.Unlock()
	r.log(&in) //nolint:contextcheck // a line in the log is not cut short
	if r.opts.Report != nil {
		r.opts.Report(&in)
	}
	r.logLost()
	return nil
}

func (r *Recorder) logLost() {
	r.mu.Lock()
	lost := r.lost
	r.lost = 0
	r.mu.Unlock()
	if lost > 0 {
		r.opts.Logger.Error("incidents were forgotten before they were logged or written: there were too many of them",
			"lost", lost)
	}
}

func (r *Recorder) log(in *api.Incident) {
	level := slog.LevelError
	if in.Severity == api.SeverityWarning {
		level = slog.LevelWarn
	}
	why := ""
	if len(in.Diagnosis) > 0 {
		why = in.Diagnosis[0]
	}
	attrs := []slog.Attr{
		slog.String("incident", in.ID), slog.String("upstream", in.Upstream), slog.String("model", in.Model),
		slog.String("meaning", in.Meaning),
		slog.Int("status", in.Status), slog.Int("concurrent", in.Concurrent), slog.String("diagnosis", why),
	}
	if in.Until != nil {
		attrs = append(attrs, slog.Time("until", *in.Until))
	}
	r.opts.Logger.LogAttrs(context.Background(), level, "incident: "+in.Summary, attrs...)
}

// saving writes incidents to the file. It has no queue: it writes whatever of the records has
// changed, so that counts of one incident are one line, and a disk that was full loses nothing.
func (r *Recorder) saving() {
	defer close(r.saved)
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.save:
		case <-tick.C:
			r.logEnds(time.Now())
		case <-r.stop:
			r.saveAll(true)
			return
		}
		r.saveAll(false)
	}
}

// saveAll writes what is not in the file: counts that have changed only from time to time, unless
// it is the last chance, which has no time for the state of quotas. It ends with the first failure:
// the next tick tries again.
func (r *Recorder) saveAll(last bool) {
	for {
		rec, in, first := r.nextUnsaved(time.Now(), last)
		if rec == nil || !last && r.stopped() {
			return
		}
		if !last && !r.check(rec, &in) { // then what is in memory has it as well
			continue
		}
		var err error
		if first {
			err = r.file.append(&in)
		} else {
			err = r.file.append(&change{in.ID, in.Count, in.Last, in.Until, in.NotPaused})
		}
		if err != nil {
			if skipped, ok := r.failed.Pass(time.Now(), warnEvery, 1); ok {
				r.opts.Logger.Error("an incident could not be written to its file; it is tried again", "incident",
					in.ID, "error", err, "not_logged", skipped)
			}
			return
		}
		r.mu.Lock()
		rec.written, rec.at = in.Count, time.Now()
		r.mu.Unlock()
	}
}

func (r *Recorder) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// nextUnsaved returns a record that has something to write, and its incident. first says that it is
// not in the file at all.
func (r *Recorder) nextUnsaved(now time.Time, last bool) (_ *record, in api.Incident, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.records {
		if !rec.checked && !last {
			return rec, rec.incident, true
		}
		if r.file == nil || rec.written == rec.incident.Count ||
			rec.written > 0 && !last && now.Sub(rec.at) < saveEvery {
			continue
		}
		return rec, rec.incident, rec.written == 0
	}
	return nil, in, false
}

// check asks once for the state of the quota. It returns whether that was done before.
func (r *Recorder) check(rec *record, in *api.Incident) bool {
	r.mu.Lock()
	before := rec.checked
	rec.checked = true
	r.mu.Unlock()
	if before || r.opts.Status == nil || len(in.Limits) == 0 {
		return before
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	st, err := r.opts.Status(ctx, in.Upstream, in.Limits[0].Policy)
	if err != nil {
		return false
	}
	r.mu.Lock()
	rec.incident.Now = st
	r.mu.Unlock()
	return false
}

// logEnds logs how many calls were refused, of incidents that have ended and were more than one.
func (r *Recorder) logEnds(now time.Time) {
	r.mu.Lock()
	var ended []api.Incident
	for _, rec := range r.records {
		if !rec.over && now.After(rec.end) {
			rec.over = true
			if rec.incident.Count > 1 {
				ended = append(ended, rec.incident)
			}
		}
	}
	r.mu.Unlock()
	for i := range ended {
		r.opts.Logger.Info("an incident is over", "incident", ended[i].ID, "refused", ended[i].Count, "last",
			ended[i].Last)
	}
}

// List returns the latest incidents, at most [api.MaxIncidents], the newest first.
func (r *Recorder) List() []api.Incident {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]api.Incident, 0, len(r.records))
	for _, rec := range slices.Backward(r.records) {
		list = append(list, rec.incident)
	}
	return list
}

// Flush waits until the incidents so far were logged and reported, or ctx ends: for processes that
// are stopped between two calls, such as AWS Lambda's. The file is not waited for. The error is
// ctx's.
func (r *Recorder) Flush(ctx context.Context) error {
	if _, err := r.reports.Flush(ctx); err != nil {
		return fmt.Errorf("incident: not all incidents were reported yet: %w", err)
	}
	return nil
}

// Close logs, reports and writes what is left, for up to 5 seconds. The error says how many
// incidents are not in the file as they should be.
func (r *Recorder) Close() error {
	r.closing.Do(func() { close(r.stop) })
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	reported := make(chan struct{})
	go func() { // Options.Report may take longer
		r.reports.Close(ctx)
		close(reported)
	}()
	outbox.Await(ctx, reported)
	outbox.Await(ctx, r.saved)
	r.logLost()
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := 0
	for _, rec := range r.records {
		if r.file != nil && rec.written != rec.incident.Count {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("incident: %d incidents are not in %s as they should be: see the log", missing,
			cmp.Or(r.opts.File, "the file"))
	}
	return nil
}
