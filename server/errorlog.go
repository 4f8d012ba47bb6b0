package server

import (
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// connectionEvery is how often a failure that a client caused is logged, at most.
const connectionEvery = 10 * time.Second

// errorLog takes what net/http writes about connections. Whoever reaches a listener can make a TLS
// handshake fail as often as it likes, so of such lines one in ten seconds is logged, with how many
// were not since the one before.
type errorLog struct {
	log *slog.Logger

	mu      sync.Mutex
	next    time.Time // guarded by mu: when the next line is logged
	skipped int       // guarded by mu: lines that were not logged
}

func newErrorLog(l *slog.Logger) *log.Logger { //nolint:forbidigo // net/http takes no other
	return log.New(&errorLog{log: l}, "", 0) //nolint:forbidigo // as above
}

// Write takes one line.
func (e *errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if strings.Contains(text, ": panic serving ") || strings.HasPrefix(text, "http: Accept error: ") {
		e.log.Warn(text) // a mistake of the program, or a lack of resources: net/http waits after the latter
		return len(line), nil
	}
	if skipped, ok := e.pass(time.Now()); ok {
		e.log.Warn(text, "not_logged", skipped)
	}
	return len(line), nil
}

func (e *errorLog) pass(now time.Time) (skipped int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Before(e.next) {
		e.skipped++
		return 0, false
	}
	skipped, e.skipped = e.skipped, 0
	e.next = now.Add(connectionEvery)
	return skipped, true
}
