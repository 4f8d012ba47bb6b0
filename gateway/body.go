package gateway

import (
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"
)

// Errors of reading a request.
var (
	errTooLarge = errors.New("gateway: the request is too large")
	errFull     = errors.New("gateway: too many bytes of requests")
)

// bodies counts the memory of the requests whose answers have not begun.
type bodies struct {
	mu sync.Mutex
	n  int64            // guarded by mu: all bytes
	of map[string]int64 // guarded by mu: those of each team, or key without a team

	freed  int64 // guarded by mu: bytes of large requests that were given back since memory was last returned
	timing bool  // guarded by mu: memory is about to be returned
}

const (
	largeBody   = 1 << 20     // bytes from which a request's memory is returned to the operating system
	returnAfter = 16 << 20    // bytes of them after which it is
	returnPause = time.Second // until whoever gave them back has let go of them, and between two times
)

// reserve reserves memory for a request as it comes: one that comes slowly, or not at all, takes
// little from the others. Where there are several teams, none may have more than half of all, but
// for a single request: the others need some too.
func (x *exchange) reserve(n int64) bool {
	o, b, team := &x.h.opts, &x.h.bodies, x.key.team()
	share := o.Bodies
	if x.state.teams > 1 {
		share = max(o.Bodies/2, o.MaxBody)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n+n > o.Bodies || b.of[team]+n > share {
		return false
	}
	if b.of == nil {
		b.of = map[string]int64{}
	}
	b.n += n
	b.of[team] += n
	x.size += n
	return true
}

// release gives the memory of the request back. The garbage collector would leave that of large
// requests in this process for minutes, or until as much again is needed.
func (x *exchange) release() {
	if x.size == 0 {
		return
	}
	b, team := &x.h.bodies, x.key.team()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n -= x.size
	if b.of[team] -= x.size; b.of[team] == 0 {
		delete(b.of, team)
	}
	if x.size >= largeBody {
		b.freed += x.size
	}
	x.size = 0
	if b.freed < returnAfter || b.timing {
		return
	}
	b.timing = true
	time.AfterFunc(returnPause, func() {
		b.mu.Lock()
		b.freed, b.timing = 0, false
		b.mu.Unlock()
		debug.FreeOSMemory()
	})
}

// readWhole reads a request to its end, into one buffer that is hardly larger than it.
func (x *exchange) readWhole(r io.Reader, most int64) ([]byte, error) {
	if size := x.r.ContentLength; size >= 0 {
		most = size // it was compared
	}
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) == most {
				return buf, atEnd(r)
			}
			size := max(firstBuffer, 2*int64(cap(buf)))
			if x.r.ContentLength >= 0 && size >= most/believed || size > most {
				size = most
			}
			if !x.reserve(size - int64(cap(buf))) {
				return nil, errFull
			}
			buf = append(make([]byte, 0, size), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err //nolint:wrapcheck // only that there is one matters
		}
	}
}

// atEnd returns an error unless nothing more comes.
func atEnd(r io.Reader) error {
	for {
		var one [1]byte
		switch n, err := r.Read(one[:]); {
		case n > 0:
			return errTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err //nolint:wrapcheck // only that there is one matters
		}
	}
}
