//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/api"
)

// serve starts a server with drawgate.yaml, and returns its address for administrators.
func (b bench) serve() (admin string, log *syncBuffer) {
	b.t.Helper()
	cmd := b.command("serve", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0")
	log = &syncBuffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	return log.await(b.t, `administration at (http://[^"]+)`), log
}

// get returns what a server answers.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Each answer to a reload names the changes that need a restart, and a metric says that there are
// some until they are taken back. All other changes are in force. A store that could not be opened
// is warned about.
func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	policies := func(amount string) string {
		return "policies:\n  api: {limits: [{name: rpd, rolling: 24h, amount: " + amount + "}]}\n"
	}
	b.write("drawgate.yaml", "store: \"memory:\"\n"+policies("2"))
	admin, log := b.serve()
	pending := func(want string) {
		t.Helper()
		if got := get(t, admin+"/metrics"); !strings.Contains(got, "\ndrawgate_config_restart_pending "+want+"\n") {
			t.Errorf("drawgate_config_restart_pending is not %s", want)
		}
	}
	pending("0")
	const hopeless = "a restart would fail"
	b.write("drawgate.yaml",
		"store: \"sqlite:state.db\"\nmax_buckets: 7\ninstances: 3\nenvoy: {refunds: true}\n"+policies("3"))
	for range 2 {
		resp, err := http.Post(admin+"/v1/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		var a api.ReloadAnswer
		err = json.NewDecoder(resp.Body).Decode(&a)
		_ = resp.Body.Close()
		if want := []string{"store", "max_buckets", "instances", "envoy"}; err != nil ||
			!slices.Equal(a.Restart, want) {
			t.Errorf("%d %v: %+v, want %q", resp.StatusCode, err, a, want)
		}
	}
	pending("1")
	if strings.Contains(log.String(), hopeless) {
		t.Errorf("a store that can be opened is warned about: %s", log)
	}
	var st api.StatusAnswer
	resp, err := http.Get(admin + "/v1/status?policy=api&key=k")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil || len(st.Limits) != 1 || st.Limits[0].Amount != 3 {
		t.Errorf("got %+v, %v, want one limit of 3", st, err)
	}
	b.write("drawgate.yaml", "store: \"sqlite:nowhere/state.db\"\n"+policies("3"))
	reload(t, admin)
	log.await(t, "("+hopeless+")")
	b.write("drawgate.yaml", "store: \"memory:\"\n"+policies("3"))
	reload(t, admin)
	pending("0")
}

// reload has the files read now.
func reload(t *testing.T, admin string) {
	t.Helper()
	resp, err := http.Post(admin+"/v1/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a reload: %s", resp.Status)
	}
}

// A mistake is reported once in the log and in the metrics, whether the file is wrong or its
// configuration cannot be put in force. The file watcher may find the mistake before the request
// does.
func TestReloadReportsAMistakeOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const good = "store: \"memory:\"\npolicies:\n  api: {limits: [{name: rpd, rolling: 24h, amount: 2}]}\n"
	b.write("drawgate.yaml", good)
	admin, log := b.serve()
	logged := func(file, mistake string) int {
		b.write("drawgate.yaml", file)
		resp, err := http.Post(admin+"/v1/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusUnprocessableEntity ||
			!strings.Contains(string(body), mistake) {
			t.Errorf("got %d %s, %v, want 422 with %q", resp.StatusCode, body, err, mistake)
		}
		log.await(t, "("+mistake+")") // a log comes through a pipe, and an answer may be there before it
		return strings.Count(log.String(), mistake)
	}
	least := logged("policies: {api: {}}\n", "has no limits") +
		logged(good+"envoy: {configs: [nowhere]}\n", "nowhere: no such file")
	metrics := get(t, admin+"/metrics")
	_, count, _ := strings.Cut(metrics, `drawgate_config_reloads_total{result="failure"} `)
	count, _, _ = strings.Cut(count, "\n")
	n, err := strconv.Atoi(count)
	if err != nil || n < least {
		t.Fatalf("%v: %d in the metrics; told %d times:\n%s", err, n, least, log)
	}
	log.await(t, "(?s)((level=WARN.*){"+count+"})") // each that is counted is told
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("got an error in the log, want warnings only: %s", log)
	}
}

// A file with only "enabled: false" switches all limits off, in a running server and in one that
// starts. Takes that name an earlier policy pass, too.
func TestEnabledFalseIsEnough(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const off, on = "enabled: false\n", "policies:\n  api: {limits: [{name: rpd, rolling: 24h, amount: 1}]}\n"
	take := []string{"take", "--policy", "api"}
	at := func(admin string, args ...string) (string, int) {
		return b.do(append([]string{"--server", admin}, args...)...)
	}
	reload := func(admin, file string) {
		b.write("drawgate.yaml", file)
		resp, err := http.Post(admin+"/v1/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%q is not put in force: %s", file, resp.Status)
		}
	}
	b.write("drawgate.yaml", on)
	running, log := b.serve()
	if _, code := at(running, take...); code != 0 {
		t.Errorf("the first take: got exit code %d", code)
	}
	reload(running, off)
	log.await(t, "(all limits are switched off: everything passes)")
	starting, log := b.serve()
	log.await(t, "(all limits are switched off: everything passes)")
	for _, admin := range []string{running, starting} {
		for _, args := range [][]string{
			take,
			{"run", "--policy", "api", "--", "true"},
			{"explain", "--policy", "api"},
		} {
			if out, code := at(admin, args...); code != 0 {
				t.Errorf("%q: got exit code %d, %s, want 0", args, code, out)
			}
		}
	}
	reload(running, on)
	if out, code := at(running, take...); code != exitRefused {
		t.Errorf("switched on again: %d, %s", code, out)
	}
}
