//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// echoedKey is a provider's key that is written differently in each encoding.
const echoedKey = "sk-proj_Ab9/x+Y.z42QRS-end"

// inEachByte writes every byte of the key in a format.
func inEachByte(format string) string {
	var b strings.Builder
	for i := range len(echoedKey) {
		fmt.Fprintf(&b, format, echoedKey[i])
	}
	return b.String()
}

// echoes are the encodings in which a provider quotes its key.
var echoes = map[string]string{
	"plain": echoedKey, "capitals": strings.ToUpper(echoedKey), "small": strings.ToLower(echoedKey),
	"json":    inEachByte(`\u%04x`),
	"slashes": strings.ReplaceAll(echoedKey, "/", `\/`), "url": url.QueryEscape(echoedKey),
	"urltwice": url.QueryEscape(url.QueryEscape(echoedKey)), "percent": inEachByte("%%%02X"),
	"html": inEachByte("&#%d;"), "htmlhex": inEachByte("&#x%x;"), "hex": hex.EncodeToString([]byte(echoedKey)),
	"base64": base64.StdEncoding.EncodeToString([]byte(echoedKey)),
	"bearer": base64.URLEncoding.EncodeToString([]byte("Bearer " + echoedKey)), "go": inEachByte(`\x%02x`),
}

// echo answers with the key at a place and in an encoding, as the path of the model says: as a
// provider does whose errors, or whose debugging, quote the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name, place, _ := strings.Cut(r.Header.Get("X-Echo"), " ")
	text := echoes[name]
	if !strings.Contains(r.Header.Get("Authorization"), echoedKey) || bytes.Contains(body, []byte(echoedKey)) {
		text = "the gateway did not send its key"
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	answer := `{"id":"x","choices":[{"message":{"content":"` + text +
		`"}}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}`
	status := http.StatusOK
	switch place {
	case "header":
		h.Set("X-Debug", "Authorization: "+text)
		h.Set("X-Ratelimit-Limit-Requests", text)
		answer = `{"choices":[]}`
	case "trailer":
		h.Set("Trailer", "X-Debug")
		defer h.Set("X-Debug", text)
		answer = `{"choices":[]}`
	case "400", "401", "403", "429", "500":
		fmt.Sscan(place, &status)
		answer = `{"error":{"message":"Rate limit reached for gpt-4o in ` + text +
			` on requests per min (RPM): Limit 3, Used 3, Requested 1. ` + text + `","type":"requests","code":"` +
			text + `"}}`
	case "stream", "pieces", "failed", "cut":
		h.Set("Content-Type", "text/event-stream")
		answer = "data: {\"choices\":[{\"delta\":{\"content\":\"" + text + "\"}}]}\n\n"
		if place == "failed" {
			answer = "data: {\"error\":{\"message\":\"" + text + "\",\"code\":\"server_error\"}}\n\n"
		}
	}
	rc := http.NewResponseController(w)
	if place == "behind" { // more than the length that it has told
		conn, _, err := rc.Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"+text+strings.Repeat("x", 100))
		return
	}
	w.WriteHeader(status)
	for len(answer) > 0 {
		n := len(answer)
		if place == "pieces" {
			n = min(n, 7)
		}
		_, _ = io.WriteString(w, answer[:n])
		_ = rc.Flush()
		answer = answer[n:]
	}
	if place == "cut" {
		_, _ = io.WriteString(w, "data: "+text)
		_ = rc.Flush()
		panic(http.ErrAbortHandler)
	}
}

// No secret of a provider is in any answer, log, metric, incident, ledger or page, wherever the
// provider quotes it, in more than ten encodings.
//
// req: C12
func TestProvidersKeyStaysHere(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(upstream.Close)
	b := newBench(t, "UPSTREAM_KEY="+echoedKey)
	upstreams := ""
	for name := range echoes { // each has a quota of its own, which a refusal closes
		upstreams += fmt.Sprintf("\n    %s: {profile: openai, url: %q, api_key_env: UPSTREAM_KEY, breaker: {enabled: false}, others: [/v1/files], models: [{model: \"*\", policy: gpt}]}", name, upstream.URL)
	}
	b.write("drawgate.yaml", fmt.Sprintf(`
store: sqlite:quota.db
policies:
  gpt: {limits: [{name: rpm, rolling: 1m, amount: 100000, margin: 2s}]}
gateway:
  ledger: {dir: ledger}
  incidents: {file: incidents.jsonl}
  upstreams: %[1]s
  keys: [{name: alice, sha256: "%[2]x"}]
`, upstreams, sha256.Sum256([]byte(virtualKey))))
	d := b.gateway()
	call := func(path, name, place string) string {
		body := `{"model":"gpt-4o-` + place + `","max_tokens":5,"messages":[]}`
		if place == "stream" || place == "pieces" || place == "failed" || place == "cut" {
			body = `{"stream":true,` + body[1:]
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.public+"/"+name+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Authorization": {"Bearer " + virtualKey}, "Content-Type": {"application/json"},
			"X-Echo": {name + " " + place}, "Drawgate-Timeout": {"0"},
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if (err != nil) != (place == "cut") {
			t.Errorf("%s, %s: %v", name, place, err)
		}
		return fmt.Sprint(resp.Status, resp.Header, resp.Trailer, string(text))
	}
	hidden := func(where, text string) {
		t.Helper()
		for name, echoed := range echoes {
			// Base64 shares no more than the bits of a neighbor with the key: its middle counts.
			if strings.Contains(text, echoed[3:len(echoed)-4]) {
				t.Errorf("%s shows the key, %s: %s", where, name, text)
			}
		}
	}
	for name := range echoes {
		for _, place := range []string{
			"header", "trailer", "body", "stream", "pieces", "failed", "cut", "behind",
			"400", "401", "403", "500",
		} {
			got := call("/v1/chat/completions", name, place)
			hidden("the answer with the key in "+place, got)
			if place == "body" && (!strings.Contains(got, "200") ||
				!strings.Contains(got, `"choices":[{"message":{"content":"`)) {
				t.Errorf("%s: got %s, want the rest of the answer as it is", name, got)
			}
		}
		hidden("the answer of another call", call("/v1/files", name, "body"))
		hidden("the provider's 429", call("/v1/chat/completions", name, "429"))
	}
	d.log.await(t, `(refused a call of gpt-4o)`)
	for _, path := range []string{
		"/metrics", "/v1/upstreams", "/v1/incidents", "/v1/usage", "/v1/policies",
		"/v1/history",
	} {
		hidden(path, d.must(d.admin+path, nil).body)
	}
	hidden("the log", d.log.String())
	files := 0
	err := filepath.WalkDir(b.dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		hidden("the file "+e.Name(), string(text))
		return err
	})
	if err != nil || files < 4 {
		t.Errorf("%d files, %v", files, err)
	}
}
