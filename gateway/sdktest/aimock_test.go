package sdktest_test

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
)

// TestAimock: the gateway works in front of a mock of the providers that somebody else wrote, which
// has its own idea of their protocols. What the SDKs say was used is what is settled.
func TestAimock(t *testing.T) {
	t.Parallel()
	p := start(t, "node/bin/node", filepath.Join("testdata", "aimock.mjs"), needs.Tool(t, "sdk-node"))
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	ready := result{}
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(ready.Text)
	if err != nil {
		t.Fatal(err)
	}
	for operation, a := range apis {
		for _, stream := range []bool{false, true} {
			t.Run(operation+map[bool]string{true: " stream"}[stream], func(t *testing.T) {
				t.Parallel()
				b := newBench(t, a, setup{upstream: upstream})
				got := b.call(golang(t, operation), job{Prompt: "How high is the water?", Max: 100, Stream: stream})
				if got.Error != nil || got.Text != "The water is two feet below the gate." || got.Output < 1 ||
					got.Input < 1 {
					t.Fatalf("got %+v, %+v", got, got.Error)
				}
				b.settled()
				if used := b.used(); used[drawgate.UnitRequests] != 1 ||
					used[unitMoney] != perInput*got.Input+perOutput*got.Output {
					t.Errorf("%v is settled, want what the SDK says was used: %+v", used, got)
				}
			})
		}
	}
}
