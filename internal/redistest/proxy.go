package redistest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy passes bytes between clients and a server. It can delay and lose the server's answers, cut
// connections, and hold them without a word. It is safe for concurrent use.
type Proxy struct {
	Addr  string       // host:port, for clients
	Delay atomic.Int64 // of each later answer of the server, in ns
	// close a connection instead of passing on its next answer; the first one, to HELLO, is passed
	// on
	Mute atomic.Bool
	// close a connection instead of passing on one in so many answers, chosen at random; 0: none
	OneIn atomic.Int64
	// close a connection after the first half of its next answer
	Half atomic.Bool

	mu     sync.Mutex
	server string        // guarded by mu
	conns  []net.Conn    // guarded by mu
	held   chan struct{} // guarded by mu: not nil while connections are held, and closed afterwards
	wg     sync.WaitGroup
}

// NewProxy starts a proxy for the server at an address, and stops it at the test's end.
func NewProxy(tb testing.TB, server string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), server: server}
	p.wg.Go(func() { p.accept(l) })
	tb.Cleanup(func() {
		_ = l.Close()
		p.Release()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

func (p *Proxy) accept(l net.Listener) {
	defer p.Cut() // connections accepted while the test ended
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		server := p.server
		p.mu.Unlock()
		s, err := net.Dial("tcp", server)
		if err != nil {
			_ = c.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, c, s)
		p.mu.Unlock()
		p.wg.Go(func() {
			_, _ = io.Copy(s, gated{c, p})
			_ = s.Close()
		})
		p.wg.Go(func() { p.answers(c, s) })
	}
}

// Switch leads all later connections to another server, and cuts those that there are.
func (p *Proxy) Switch(server string) {
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	p.Cut()
}

// Cut closes all current connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// Hold lets nothing pass any more, in either direction: connections stay open, new ones are
// accepted, and nobody hears anything, as when a network is cut in two.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release ends Hold: what was held back arrives now.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// wait returns when nothing is held.
func (p *Proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// gated reads what a client sends, and returns it when it may pass.
type gated struct {
	net.Conn
	p *Proxy
}

func (g gated) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.p.wait()
	return n, err
}

// chunk is a part of the server's answers, and when it may arrive.
type chunk struct {
	b    []byte
	when time.Time
}

// backlog is how many chunks may be in flight: more than a client leaves unread while it is still
// there.
const backlog = 1000

// answers passes on what the server sends on s, each part after the delay that was set when it was
// sent.
func (p *Proxy) answers(c, s net.Conn) {
	chunks := make(chan chunk, backlog)
	defer func() { _ = s.Close() }()
	defer close(chunks)
	p.wg.Go(func() { pass(c, chunks) })
	buf := make([]byte, 1<<16)
	for {
		n, err := s.Read(buf)
		p.wait()
		hello := n > 0 && buf[0] == '%' // its answer is a map
		if err != nil || p.loses() && !hello {
			return
		}
		half := p.Half.Load() && !hello
		if half {
			n /= 2
		}
		select {
		case chunks <- chunk{append([]byte(nil), buf[:n]...), time.Now().Add(time.Duration(p.Delay.Load()))}:
		default: // nobody is reading any more
			return
		}
		if half {
			return
		}
	}
}

// loses reports whether the next answer is lost.
func (p *Proxy) loses() bool {
	n := p.OneIn.Load()
	return p.Mute.Load() || n > 0 && rand.N(n) == 0
}

// pass writes chunks to a client when they may arrive, and then closes its connection.
func pass(c net.Conn, chunks <-chan chunk) {
	defer func() { _ = c.Close() }()
	for ch := range chunks {
		time.Sleep(time.Until(ch.when))
		if _, err := c.Write(ch.b); err != nil {
			return
		}
	}
}
