package server

import (
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// connectionEvery is the shortest time between log lines about failures that clients caused.
const connectionEvery = 10 * time.Second

// errorLog receives what net/http logs about connections. Any client can make TLS handshakes fail
// as often as it likes, so only one such line in ten seconds is logged, with the number of lines
// that were left out.
type errorLog struct {
	log *slog.Logger

	mu      sync.Mutex
	next    time.Time // guarded by mu: when the next line may be logged
	skipped int       // guarded by mu: lines that were not logged
}

func newErrorLog(l *slog.Logger) *log.Logger { //nolint:forbidigo // net/http takes no other
	return log.New(&errorLog{log: l}, "", 0) //nolint:forbidigo // as above
}

// Write takes one line.
func (e *errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if strings.Contains(text, ": panic serving ") || strings.HasPrefix(text, "http: Accept error: ") {
		e.log.Warn(text) // a bug, or a lack of resources, after which net/http waits
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
