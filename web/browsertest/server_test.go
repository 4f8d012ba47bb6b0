package browsertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
)

// server is a real drawgate serve.
type server struct {
	t                      *testing.T
	public, admin, gateway string // URLs
	token                  string // "" if none is needed

	dir, config string
	cmd         *exec.Cmd
	log         *redistest.Output
	done        chan struct{}
}

// serve starts a server with a configuration, in a folder of its own.
func serve(t *testing.T, config string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), config: config}
	s.start("127.0.0.1:0")
	t.Cleanup(s.stop)
	return s
}

// start starts the process with an address for administrators.
func (s *server) start(admin string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "drawgate.yaml")
	if err := os.WriteFile(path, []byte(s.config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.log, s.done = redistest.NewOutput(""), make(chan struct{})
	s.cmd = exec.Command(program, "serve", "--config", path, "--listen", "127.0.0.1:0", "--admin", admin)
	s.cmd.Dir, s.cmd.Stderr, s.cmd.SysProcAttr = s.dir, s.log, redistest.DieWithParent()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // it is stopped by a signal
		close(done)
	}(s.cmd, s.done)
	s.public = s.await(`msg="listening on (http://[^"]+)"`)
	s.admin = s.await(`administration at (http://[^"]+)`)
	if regexp.MustCompile(`(?m)^gateway:`).MatchString(s.config) {
		s.gateway = s.await(`gateway listening on (http://[^"]+)`)
	}
}

// await waits for a line of the log, and returns a part of it.
func (s *server) await(pattern string) string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if m := re.FindStringSubmatch(s.log.String()); m != nil {
			return m[1]
		}
		select {
		case <-s.done:
			s.t.Fatalf("the server ended: %s", s.log)
		default:
		}
	}
	s.t.Fatalf("%s is not in the log: %s", pattern, s.log)
	return ""
}

// stop stops the process.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.done
}

// request sends a request with headers, and returns the status and the answer.
func (s *server) request(method, url, body string, headers ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// post sends a request that must succeed.
func (s *server) post(url string, body any) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	if status, answer := s.request(http.MethodPost, url, string(text)); status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", url, text, status, answer)
	}
}

// fields are those of a request.
type fields map[string]any

// take takes units.
func (s *server) take(f fields) {
	s.t.Helper()
	s.post(s.public+"/v1/take", f)
}

// has reports whether the server has a path.
func (s *server) has(path string) bool {
	s.t.Helper()
	status, _ := s.request(http.MethodGet, s.admin+path, "")
	return status != http.StatusNotFound
}

func body(text string) io.Reader { return bytes.NewReader([]byte(text)) }

// takes sends a take at each interval, the i-th with the body take(i), until the test ends.
func (s *server) takes(every time.Duration, take func(i int) string) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			res, err := http.Post(s.public+"/v1/take", "application/json", body(take(i)))
			if err != nil {
				s.t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	})
	s.t.Cleanup(func() {
		close(done)
		wg.Wait()
	})
}

// listen serves a site, and returns its URL.
func listen(t *testing.T, srv *http.Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(ln) }() // until it is closed
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + ln.Addr().String()
}
