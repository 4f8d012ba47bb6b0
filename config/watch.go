package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// WatchOptions holds what a [Watcher] can do without. The zero value is ready to use.
type WatchOptions struct {
	// Debounce is how long files must stay unchanged before they are read. After the same time they
	// are read again, and must be the same, so that a half-written file has no effect. 0 means
	// 200ms. If their directories change all the time, they are read after five times that.
	Debounce time.Duration
	// Poll is how often files are compared even if no change was reported, for file systems that
	// report none: 0 means 30s, negative never.
	Poll time.Duration
	// Failed is called with the reason why a change is not in force: the files could not be read,
	// have mistakes ([Problems]), or apply returned an error. What was in force stays. It is called
	// as apply is, once per state of the files. nil: errors are not reported.
	Failed func(err error)
	// Logger receives problems of the watching itself; nil discards.
	Logger *slog.Logger

	closing time.Duration // how long Close waits; 0: closeTimeout
}

const (
	defaultDebounce = 200 * time.Millisecond
	defaultPoll     = 30 * time.Second
	noNoticePoll    = 5 * time.Second // at most, where the system gives no notices
	closeTimeout    = 5 * time.Second // on an unavailable file system reads may wait forever
	maxDebounces    = 5               // after so many of them files are read although something still changes
	maxReads        = 5               // of the files, while other directories have to be followed each time
)

// Watcher resolves a configuration again whenever one of its files has changed: the file itself,
// the file of rules, those of secrets, and Envoy's. Its methods are safe for concurrent use.
type Watcher struct {
	opts  WatchOptions
	apply func(*Config) error
	base  *Config
	dirs  *directories

	known readFiles  // what was told of last; of the goroutine alone
	seen  *readFiles // what was new when it was read, and is not told yet; nil: nothing; of the goroutine alone

	ask  chan chan error // Reload
	done chan struct{}
	stop context.CancelFunc
}

// ErrNotWatching is what [Watcher.Reload] returns after the watcher has ended.
var ErrNotWatching = errors.New("config: the configuration is no longer watched")

// Watch begins to watch the files of a configuration that [Resolve] returned, until ctx ends or
// Close is called. apply is called with each new configuration, which was resolved with the same
// environment and flags, by one goroutine, one call at a time; its error says that the new
// configuration is not in force. opts may be nil.
//
// Directories are watched, not files: so editors that replace a file, files that are removed and
// come back, and the symbolic links that Kubernetes swaps are noticed, whichever part of the path
// they change. Reports without a change of content have no effect. The latest version is always
// read in the end.
//
// A change that leaves no policy and no Envoy file is refused, because the file may have been
// truncated. To switch limits off, set enabled: false.
func Watch(ctx context.Context, c *Config, apply func(*Config) error, opts *WatchOptions) *Watcher {
	w := &Watcher{apply: apply, base: c, known: c.read, ask: make(chan chan error), done: make(chan struct{})}
	if opts != nil {
		w.opts = *opts
	}
	if w.opts.Debounce <= 0 {
		w.opts.Debounce = defaultDebounce
	}
	if w.opts.Poll == 0 {
		w.opts.Poll = defaultPoll
	}
	if w.opts.Failed == nil {
		w.opts.Failed = func(error) {}
	}
	if w.opts.Logger == nil {
		w.opts.Logger = slog.New(slog.DiscardHandler)
	}
	w.dirs = newDirectories(w.opts.Logger)
	if w.dirs.watcher == nil && w.opts.Poll > noNoticePoll {
		w.opts.Poll = noNoticePoll
	}
	w.dirs.follow(w.paths())
	ctx, w.stop = context.WithCancel(ctx)
	go w.run(ctx)
	return w
}

// Close stops watching, and waits for a running apply, but for at most five seconds.
// No apply begins after it.
func (w *Watcher) Close() {
	w.stop()
	t := time.NewTimer(cmp.Or(w.opts.closing, closeTimeout))
	defer t.Stop()
	select {
	case <-w.done:
	case <-t.C:
		w.opts.Logger.Warn("config: closed while files were still being read or a new configuration was being put in force")
	}
}

// Reload reads the files now, whether they have changed or not, calls apply, and returns what went
// wrong: for SIGHUP, and for administrators. The error is nil if what the files say is in force. It
// may be used from apply or Failed only in another goroutine.
func (w *Watcher) Reload(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case w.ask <- answer:
	case <-w.done:
		return ErrNotWatching
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run waits for notices until ctx ends.
func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	defer w.dirs.close()
	t := newTimers(w.opts)
	defer t.stop()
	t.soon() // something may have changed since the files were read
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.dirs.events():
			w.dirs.note(e)
			t.soon()
		case err := <-w.dirs.errors():
			w.opts.Logger.Warn("config: a report of a changed file was lost", "error", err)
			t.soon() // the queue of notices ran over: anything may have changed
		case <-t.poll:
			if again, _ := w.look(ctx, false); again {
				t.soon()
			}
		case <-t.quiet.C:
			t.over()
			if again, _ := w.look(ctx, false); again {
				t.soon()
			}
		case answer := <-w.ask:
			_, err := w.look(ctx, true)
			answer <- err
		}
	}
}

// look reads the files. What is new is told when it has been read twice, a while apart: until then
// again is true. With force it is told at once, new or not, and what went wrong is returned.
func (w *Watcher) look(ctx context.Context, force bool) (again bool, err error) {
	c, read, err := w.load()
	switch {
	case ctx.Err() != nil:
		return false, ErrNotWatching
	case force:
	case read.same(&w.known):
		w.seen = nil
		return false, nil
	case w.seen == nil || !read.same(w.seen):
		w.seen = &read
		return true, nil
	}
	w.known, w.seen = read, nil
	if err == nil {
		if err = w.apply(c); err != nil {
			err = fmt.Errorf("config: the new configuration is not in force: %w", err)
		}
	}
	if err != nil {
		w.opts.Failed(err)
	}
	return false, err
}

// load reads the files. The directories are followed before: whatever changes after that is
// noticed, and whatever changed before is read.
func (w *Watcher) load() (c *Config, read readFiles, err error) {
	if w.base.again == nil {
		return nil, w.known, errors.New("config: this configuration was not made by Resolve, so it cannot be reloaded")
	}
	paths := w.paths()
	w.dirs.follow(paths)
	for range maxReads {
		c, read, err = w.base.again()
		paths = append(paths, read.paths()...)
		if !w.dirs.follow(paths) {
			break
		}
	}
	if err == nil {
		if problems := c.withoutPolicies("the old configuration stays in force; to switch limits off, set enabled: false"); problems != nil {
			return nil, read, problems
		}
	}
	return c, read, err
}

// withoutPolicies returns a problem if there is nothing to decide by, and nobody said so.
func (c *Config) withoutPolicies(hint string) Problems {
	if len(c.Policies) > 0 || len(c.Envoy.Configs) > 0 || c.Off {
		return nil
	}
	return Problems{{File: cmp.Or(c.file, "environment"), Message: "there are no policies", Hint: hint}}
}

// paths returns the files that are watched.
func (w *Watcher) paths() []string {
	list := w.known.paths()
	if w.seen != nil {
		list = append(list, w.seen.paths()...)
	}
	return list
}

// timers say when to look.
type timers struct {
	debounce time.Duration
	quiet    *time.Timer // runs while something is to be looked at
	since    time.Time   // of the first notice that was not looked at; zero if there is none
	ticker   *time.Ticker
	poll     <-chan time.Time
}

func newTimers(opts WatchOptions) *timers {
	t := &timers{debounce: opts.Debounce, quiet: time.NewTimer(opts.Debounce)}
	t.quiet.Stop()
	if opts.Poll > 0 {
		t.ticker = time.NewTicker(opts.Poll)
		t.poll = t.ticker.C
	}
	return t
}

// soon has the files looked at when nothing has changed for a while, or something has changed for
// too long.
func (t *timers) soon() {
	now := time.Now()
	if t.since.IsZero() {
		t.since = now
	}
	t.quiet.Reset(max(0, min(t.debounce, t.since.Add(maxDebounces*t.debounce).Sub(now))))
}

func (t *timers) over() { t.since = time.Time{} }

func (t *timers) stop() {
	t.quiet.Stop()
	if t.ticker != nil {
		t.ticker.Stop()
	}
}
