package server

import (
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/sampler"
)

// connectionEvery is the shortest time between log lines about failures that clients caused.
const connectionEvery = 10 * time.Second

// errorLog receives what net/http logs about connections. Any client can make TLS handshakes fail
// as often as it likes, so only one such line in ten seconds is logged, with the number of lines
// that were left out.
type errorLog struct {
	log    *slog.Logger
	logged sampler.Sampler
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
	if skipped, ok := e.logged.Pass(time.Now(), connectionEvery, 1); ok {
		e.log.Warn(text, "not_logged", skipped)
	}
	return len(line), nil
}
