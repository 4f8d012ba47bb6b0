// Package syncbuffer holds what a program or a log writes, and tests read meanwhile.
package syncbuffer

import (
	"bytes"
	"sync"
)

// Buffer is safe for concurrent use. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what was written, except what was taken.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Take returns what was written since the last Take.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return b.b.String()
}
