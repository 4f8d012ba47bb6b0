package redistest

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// caller is a client that sends lines and reads lines.
type caller struct {
	net.Conn
	*bufio.Scanner
}

func dial(t *testing.T, p *Proxy) *caller {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &caller{c, bufio.NewScanner(c)}
}

// ping returns the answer to a PING, "" if there is none.
func (c *caller) ping() string {
	if _, err := c.Write([]byte("PING\r\n")); err != nil || !c.Scan() {
		return ""
	}
	return c.Text()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, Start(t).Addr)
	a, b := dial(t, p), dial(t, p)
	if a.ping() != "+PONG" || b.ping() != "+PONG" {
		t.Fatal("it does not pass on what is said")
	}
	const late = 50 * time.Millisecond
	p.Delay.Store(int64(late))
	if start := time.Now(); a.ping() != "+PONG" || time.Since(start) < late {
		t.Errorf("an answer came after %v, want it after %v", time.Since(start), late)
	}
	p.Delay.Store(0)
	p.Mute.Store(true)
	if got := a.ping(); got != "" {
		t.Errorf("an answer that is lost: %q", got)
	}
	p.Mute.Store(false)
	if b.ping() != "+PONG" {
		t.Error("another connection was cut too")
	}
	p.Cut()
	if got := b.ping(); got != "" {
		t.Errorf("a connection that was cut answers %q", got)
	}
	c := dial(t, p)
	if c.ping() != "+PONG" {
		t.Error("there is no new connection")
	}
	p.Hold()
	said := make(chan string)
	go func() { said <- c.ping() }()
	select {
	case got := <-said:
		t.Errorf("a connection that is held answers %q", got)
	case <-time.After(late):
	}
	p.Release()
	if got := <-said; got != "+PONG" {
		t.Errorf("after it was held: %q", got)
	}
	p.Half.Store(true)
	if got := c.ping(); got != "+PO" || c.ping() != "" {
		t.Errorf("half an answer: %q", got)
	}
}
