package server

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

var progressType = []string{api.ProgressType}

// wantsProgress reports whether a request accepts lines of progress: whether it names them, unless
// with quality 0.
func wantsProgress(r *http.Request) bool {
	for _, list := range r.Header["Accept"] {
		for media := range strings.SplitSeq(list, ",") {
			media, params, _ := strings.Cut(media, ";")
			if strings.EqualFold(strings.TrimSpace(media), api.ProgressType) && !qualityZero(params) {
				return true
			}
		}
	}
	return false
}

// qualityZero reports whether the parameters of a media type say that it is not acceptable.
func qualityZero(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		return err == nil && q == 0
	}
	return false
}

// progress writes what a take waits for, and then its answer, as lines. A client that does not read
// must not hold up the take, which may be the first of its line; so a goroutine writes, and skips
// what is outdated.
type progress struct {
	w       http.ResponseWriter
	latest  chan drawgate.Progress // holds one
	over    sync.Once
	done    chan struct{} // closed when nothing is being written any more
	started bool          // the headers are written; to be read after done
}

func newProgress(w http.ResponseWriter) *progress {
	p := &progress{w: w, latest: make(chan drawgate.Progress, 1), done: make(chan struct{})}
	go p.write()
	return p
}

// tell replaces what is not written yet. Only one goroutine calls it.
func (p *progress) tell(now drawgate.Progress) {
	select {
	case <-p.latest:
	default:
	}
	p.latest <- now
}

func (p *progress) write() {
	defer close(p.done)
	c := http.NewResponseController(p.w)
	for now := range p.latest {
		p.start()
		line := present.Progress(&now)
		// the client has closed the connection
		_, _ = p.w.Write(append(marshal(api.ProgressLine{Progress: &line}), '\n'))
		_ = c.Flush() // writers in memory need none
	}
}

// start writes the headers once.
func (p *progress) start() {
	if !p.started {
		p.started = true
		write(p.w, http.StatusOK, progressType, nil)
	}
}

// end waits until the last line of progress is written. It may be called again.
func (p *progress) end() {
	p.over.Do(func() { close(p.latest) })
	<-p.done
}

// answer writes the last line.
func (p *progress) answer(line []byte) {
	p.start()
	_, _ = p.w.Write(line)
}
