package redistest

import (
	"net"
	"testing"
	"time"
)

func TestServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if s.PID() == 0 || s.URL() != "redis://"+s.Addr {
		t.Errorf("pid %d, URL %q", s.PID(), s.URL())
	}
	s.Stop()
	if answers(t, s, 100*time.Millisecond) {
		t.Error("a server that stands still answers")
	}
	s.Continue()
	if !answers(t, s, patience) {
		t.Error("a server that goes on does not answer")
	}
	pid := s.PID()
	s.Kill9()
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		_ = c.Close()
		t.Error("a killed server listens")
	}
	s.Restart()
	if !answers(t, s, patience) || s.PID() == pid {
		t.Error("a server that was started again does not answer")
	}
}

// answers reports whether the server answers a PING in time.
func answers(t *testing.T, s *Server, in time.Duration) bool {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(in))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	n, _ := c.Read(make([]byte, 16))
	return n > 0
}
