package guard_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy passes bytes between clients and a server. It can delay what the server answers, or lose it.
type proxy struct {
	addr  string
	delay atomic.Int64 // of each answer, in ns
	mute  atomic.Bool  // close a connection instead of passing its next answer on

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, c, s)
			p.mu.Unlock()
			p.wg.Go(func() { _, _ = io.Copy(s, c); s.Close() })
			p.wg.Go(func() { p.answers(c, s) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}

// chunk is what the server answered, and when it may arrive.
type chunk struct {
	b    []byte
	when time.Time
}

func (p *proxy) answers(c, s net.Conn) {
	chunks := make(chan chunk, 1000)
	defer s.Close()
	defer close(chunks)
	p.wg.Go(func() {
		defer c.Close()
		for ch := range chunks {
			time.Sleep(time.Until(ch.when))
			if _, err := c.Write(ch.b); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 1<<16)
	for {
		n, err := s.Read(buf)
		if err != nil || p.mute.Load() && buf[0] != '%' { // a new connection begins with the answer to HELLO, a map
			return
		}
		select {
		case chunks <- chunk{append([]byte(nil), buf[:n]...), time.Now().Add(time.Duration(p.delay.Load()))}:
		default: // nobody reads any more
			return
		}
	}
}
