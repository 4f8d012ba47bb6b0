package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/api"
)

// TestReloadNamesWhatNeedsARestart: what cannot change while the server runs is named by the answer, each time, and the rest is in force.
func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	policies := func(amount string) string {
		return "policies:\n  api: {limits: [{name: rpd, rolling: 24h, amount: " + amount + "}]}\n"
	}
	b.write("drawgate.yaml", "store: \"memory:\"\n"+policies("2"))
	cmd := b.command("serve", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0")
	var log syncBuffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	admin := log.await(t, `administration at (http://[^"]+)`)
	b.write("drawgate.yaml", "store: \"sqlite:state.db\"\nmax_buckets: 7\ninstances: 3\nenvoy: {refunds: true}\n"+policies("3"))
	for range 2 {
		resp, err := http.Post(admin+"/v1/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		var a api.ReloadAnswer
		err = json.NewDecoder(resp.Body).Decode(&a)
		_ = resp.Body.Close()
		if want := []string{"store", "max_buckets", "instances", "envoy"}; err != nil || !slices.Equal(a.Restart, want) {
			t.Errorf("%d %v: %+v, want %q", resp.StatusCode, err, a, want)
		}
	}
	var st api.StatusAnswer
	resp, err := http.Get(admin + "/v1/status?policy=api&key=k")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil || len(st.Limits) != 1 || st.Limits[0].Amount != 3 {
		t.Errorf("%v: %+v", err, st)
	}
}
