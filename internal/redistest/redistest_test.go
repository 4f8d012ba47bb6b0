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
	if quiet(t, s) != true {
		t.Error("a server that stands still answers")
	}
	s.Continue()
	if quiet(t, s) {
		t.Error("a server that goes on does not answer")
	}
	pid := s.PID()
	s.Kill9()
	if s.answers() {
		t.Error("a killed server answers")
	}
	s.Restart()
	if !s.answers() || s.PID() == pid {
		t.Error("a server that was started again does not answer")
	}
}

// quiet reports whether the server leaves a PING unanswered for a while.
func quiet(t *testing.T, s *Server) bool {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	n, _ := c.Read(make([]byte, 16))
	return n == 0
}
