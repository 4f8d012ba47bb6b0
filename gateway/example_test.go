package gateway_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store/memstore"
)

// A gateway with a quota of two calls a minute, in front of a simulated provider.
func Example() {
	provider, err := simulator.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memstore.New(nil)
	defer store.Close()
	quota := drawgate.Policy{Name: "gpt", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 2, time.Minute)}}
	eng, err := engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: quota}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer eng.Close()
	h, err := gateway.New(eng, gateway.Config{
		Upstreams: []gateway.Upstream{{
			Name: "openai", Profile: llm.OpenAI(), URL: &url.URL{Scheme: "https", Host: "api.openai.com"},
			Key:    "the provider's key",
			Models: []gateway.Model{{Name: "gpt-*", Policy: "gpt"}},
		}},
		Keys: []gateway.Key{{Name: "alice", Sum: sha256.Sum256([]byte("alice's key"))}},
	}, &gateway.Options{Base: provider.Transport()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()
	server := httptest.NewServer(h)
	defer server.Close()

	for range 3 {
		body := strings.NewReader(`{"model": "gpt-4.1", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello!"}]}`)
		r, err := http.NewRequest(http.MethodPost, server.URL+"/openai/v1/chat/completions", body)
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("Authorization", "Bearer alice's key")
		r.Header.Set(gateway.HeaderTimeout, "0") // do not wait in the queue
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("%d, Retry-After: %q\n", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	// Output:
	// 200, Retry-After: ""
	// 200, Retry-After: ""
	// 429, Retry-After: "60"
}
