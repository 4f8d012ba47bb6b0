package sdktest_test

import (
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store/memstore"
)

// foreignKey is the secret of a key that owns nothing.
const foreignKey = "vk-foreign-0123456789"

// onePixel is a PNG.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="

// notChats are the steps of testdata/others.*, and what each must show.
var notChats = map[string]string{
	"moderation":               "alse", // False, false
	"moderations":              "2",
	"images":                   "544",
	"stream":                   "image_generation.partial_image image_generation.partial_image image_generation.completed 1256",
	"edit":                     "1 194",
	"edits":                    "2 582",
	"variation":                "NotFoundError: 404 image variations",
	"speech":                   "NotFoundError: 404 sound",
	"batches":                  "NotFoundError: 404 batches",
	"get":                      "rue",
	"items":                    "1",
	"continue":                 "incomplete",
	"foreign get":              "NotFoundError: 404 no response of this key",
	"foreign continue":         "NotFoundError: 404 no response of this key",
	"conversation":             "NotFoundError: 404 conversations",
	"delete":                   "",
	"deleted":                  "NotFoundError: 404 No such response",
	"file":                     "5",
	"content":                  "Hello",
	"file in a prompt":         "incomplete",
	"foreign file":             "NotFoundError: 404 no file of this key",
	"foreign file in a prompt": "NotFoundError: 404 no file of this key",
	"files":                    "NotFoundError: 404 no list",
	"delete file":              "rue",
}

// TestSDKsBeyondChats: images, edits, moderations, stored responses and files work with the
// official SDKs of OpenAI; what is refused is the SDK's own error, which says what it was and why.
func TestSDKsBeyondChats(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *process{
		"Python": func(t *testing.T) *process {
			t.Helper()
			return start(t, "sdk-python/bin/python", filepath.Join("testdata", "others.py"))
		},
		"TypeScript": func(t *testing.T) *process {
			t.Helper()
			return start(t, "node/bin/node", filepath.Join("testdata", "others.mjs"), needs.Tool(t, "sdk-node"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			job, err := json.Marshal(map[string]string{
				"url": keepingGateway(t), "mine": virtualKey, "foreign": foreignKey, "png": onePixel,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.in.Write(append(job, '\n')); err != nil {
				t.Fatal(err)
			}
			line, err := p.out.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var steps map[string]string
			if err := json.Unmarshal(line, &steps); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			for name, want := range notChats {
				got, ok := steps[name]
				for word := range strings.FieldsSeq(want) {
					if !strings.Contains(got, word) || !ok {
						t.Errorf("%s: got %q, want %q", name, got, want)
						break
					}
				}
			}
			if len(steps) != len(notChats) {
				t.Errorf("%d steps, want %d", len(steps), len(notChats))
			}
		})
	}
}

// keepingGateway returns the URL of a gateway, with an upstream that knows whose is what is stored.
func keepingGateway(t *testing.T) string {
	t.Helper()
	sim, err := simulator.New(&simulator.Options{Keys: []simulator.Key{{Secret: upstreamKey, Name: "account"}}})
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(sim)
	t.Cleanup(behind.Close)
	at, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(nil)
	t.Cleanup(func() { store.Close() })
	e, err := engine.New(store, engine.Config{Policies: []engine.Policy{
		{Policy: drawgate.Policy{Name: "quota", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 1000,
			time.Hour)}}},
		{Policy: gateway.OwnedPolicy(), Base: true},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	h, err := gateway.New(e, gateway.Config{
		Upstreams: []gateway.Upstream{{
			Name: "openai", Profile: llm.OpenAI(), URL: at, Key: upstreamKey,
			Models: []gateway.Model{{Name: "*", Policy: "quota"}},
			Stored: &gateway.Stored{By: gateway.StoredByKey, Policy: "quota"},
		}},
		Keys: []gateway.Key{
			{Name: "caller", Sum: sha256.Sum256([]byte(virtualKey))},
			{Name: "foreign", Sum: sha256.Sum256([]byte(foreignKey))},
		},
	}, &gateway.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	return front.URL + "/openai"
}
