// Package promtest runs a real Prometheus for tests.
package promtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pattern"
)

// Server is a Prometheus process of its own on a free port of the loopback interface.
type Server struct {
	URL string

	tb testing.TB
}

var listening = pattern.New(`msg="Listening on" address=(\S+)`)

// patience is how long to wait for something that must happen.
const patience = 2 * time.Minute

// Options holds what [Start] can do without.
type Options struct {
	Rules []string // absolute paths of files with rules, which are evaluated every second
	Args  []string // further arguments
	More  []string // further targets, host:port
}

// Start starts a Prometheus that scrapes /metrics of host:port every second, and stops it at the
// test's end. opts may be nil. It returns once it has scraped twice. Without prometheus on the
// machine the test fails, because a skipped test would prove nothing.
func Start(tb testing.TB, target string, opts *Options) *Server {
	tb.Helper()
	needs.Program(tb, "prometheus")
	dir := tb.TempDir()
	if opts == nil {
		opts = &Options{}
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [%s]\n"+
		"scrape_configs:\n- {job_name: drawgate, static_configs: [{targets: ['%s']}]}\n",
		strings.Join(opts.Rules, ", "), strings.Join(append([]string{target}, opts.More...), "', '"))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	args := append([]string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0",
	}, opts.Args...)
	cmd := exec.CommandContext(tb.Context(), "prometheus", args...) //nolint:gosec // the arguments are the test's
	cmd.SysProcAttr = dieWithParent()
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, patience
	out, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	address, done := make(chan string, 1), make(chan struct{})
	go read(out, address, done)
	tb.Cleanup(func() { // the test's context has ended by now
		<-done
		_ = cmd.Wait()
	})
	s := &Server{tb: tb}
	select {
	case a := <-address:
		s.URL = "http://" + a
	case <-done:
		tb.Fatal("prometheus ended before it listened")
	case <-time.After(patience):
		tb.Fatalf("prometheus did not listen within %v", patience)
	}
	s.Eventually("count_over_time(up[1m]) >= 2")
	return s
}

// read searches the log of a Prometheus for the address it listens on, until the log ends.
func read(out io.Reader, address chan<- string, done chan<- struct{}) {
	defer close(done)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if f := listening().FindStringSubmatch(lines.Text()); f != nil {
			select {
			case address <- f[1]:
			default:
			}
		}
	}
}

// Sample is one series of an answer.
type Sample struct {
	Metric map[string]string
	Value  string
}

// Query evaluates an expression now.
func (s *Server) Query(expr string) ([]Sample, error) {
	req, err := http.NewRequestWithContext(s.tb.Context(), http.MethodGet,
		s.URL+"/api/v1/query?query="+url.QueryEscape(expr), http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("promtest: %s: %w", res.Status, err)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("promtest: %s: %s", expr, answer.Error)
	}
	var all []Sample
	for _, r := range answer.Data.Result {
		all = append(all, Sample{r.Metric, fmt.Sprint(r.Value[1])})
	}
	return all, nil
}

// Eventually evaluates an expression until it has a result, and fails the test if there is none
// within two minutes.
func (s *Server) Eventually(expr string) []Sample {
	s.tb.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var all []Sample
		if all, err = s.Query(expr); len(all) > 0 {
			return all
		}
		if err != nil && strings.Contains(err.Error(), "parse error") {
			break
		}
	}
	s.tb.Errorf("%s has no result: %v", expr, err)
	return nil
}
