package redistest

import (
	"strings"
	"sync"
)

// Output collects what a process writes. It is safe for concurrent use.
type Output struct {
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
	want  string          // guarded by mu: "" once it was written
	shown chan struct{}
}

// NewOutput returns an Output that waits for a text; "" waits for nothing.
func NewOutput(want string) *Output { return &Output{want: want, shown: make(chan struct{})} }

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if o.want != "" && strings.Contains(o.text.String(), o.want) {
		o.want = ""
		close(o.shown)
	}
	return len(b), nil
}

// Shown returns a channel that is closed once the text was written.
func (o *Output) Shown() <-chan struct{} { return o.shown }

// String returns what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
