package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm"
)

// filtered gives a stream to a filter in pieces, and returns what passes. It reports what had
// passed after each piece.
func filtered(stream []byte, cuts []int, passed func(in, out int)) []byte {
	f := eventFilter{usage: true}
	var out []byte
	for _, n := range cuts {
		n = min(n, len(stream))
		out = append(out, f.next(stream[:n])...)
		passed(n, len(out))
		stream = stream[n:]
	}
	out = append(out, f.next(stream)...)
	return append(out, f.rest()...)
}

// TestUsageFilter: however a stream is cut into pieces, the event that has nothing but the usage is
// left out, the rest passes byte for byte, and a whole event is never held back.
func TestUsageFilter(t *testing.T) {
	t.Parallel()
	usage := []string{
		`data: {"id":"1","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}`,
		`data:{"usage": {"prompt_tokens": 5} , "choices" : [ ]}`,
		"event: x\ndata: {\"choices\":[],\ndata: \"usage\":{}}",
	}
	others := []string{
		`data: {"choices":[{"index":0,"delta":{"content":"the word \"usage\""}}],"usage":null}`,
		`data: {"choices":[],"prompt_filter_results":[],"usage":null}`,
		`data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":5}}`,
		`data: {"error":{"message":"x"},"usage":{}}`,
		`: a comment`, `: "usage"`, `data: [DONE]`, `data: {"choices":[],"usage":`, `event: ping`, ``,
		`data: ` + strings.Repeat("x", 2*maxHeld), `data: "usage"` + strings.Repeat("\n:x", maxHeld),
	}
	rapid.Check(t, func(t *rapid.T) {
		var stream, want []byte
		var ends []int // of events, in what passes and in what comes
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end of line")
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			drop := rapid.Bool().Draw(t, "drop")
			text := rapid.SampledFrom(others).Draw(t, "event")
			if drop {
				text = rapid.SampledFrom(usage).Draw(t, "usage")
			}
			text = strings.ReplaceAll(text, "\n", end) + end + end
			stream = append(stream, text...)
			if !drop {
				want = append(want, text...)
			}
			ends = append(ends, len(stream), len(want))
		}
		cuts := rapid.SliceOfN(rapid.IntRange(0, 4000), 0, 30).Draw(t, "cuts")
		in := 0
		got := filtered(stream, cuts, func(n, out int) {
			in += n
			for i := 0; i < len(ends); i += 2 {
				if ends[i] <= in && out < ends[i+1] {
					t.Fatalf("after %d bytes %d have passed, want %d: an event has ended", in, out, ends[i+1])
				}
			}
		})
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

// FuzzUsageFilter: whatever a provider sends, what passes does not depend on the pieces, nothing is
// added, and little is held.
func FuzzUsageFilter(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n"), uint8(3))
	f.Add([]byte(": x\r\n\r\ndata: \"usage\"\r\r\n\n"), uint8(1))
	f.Add([]byte("event: error\ndata: {\"error\":{\"message\":\"of org-4bcDEF0123456789\"}}\r\r"), uint8(5))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		whole, pieces := eventFilter{usage: true}, eventFilter{usage: true}
		want := append(bytes.Clone(whole.next(bytes.Clone(stream))), whole.rest()...)
		var got []byte
		for piece := range slices.Chunk(stream, int(size)+1) {
			got = append(got, pieces.next(piece)...)
			if len(pieces.held) > maxHeld+len(piece) {
				t.Fatalf("%d bytes are held", len(pieces.held))
			}
		}
		got = append(got, pieces.rest()...)
		if len(got) > len(stream) || len(want) > len(stream) {
			t.Fatalf("%d and %d bytes passed of %d", len(got), len(want), len(stream))
		}
		if !bytes.Contains(stream, []byte(`"usage"`)) && !bytes.Contains(stream, []byte("error")) &&
			(!bytes.Equal(got, stream) || !bytes.Equal(want, stream)) {
			t.Fatalf("something is missing: %q, then %q and %q", stream, want, got)
		}
	})
}

// FuzzRequest: whatever is asked, the gateway answers, and nothing is sent to another place than
// the upstream's.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/openai/v1/chat/completions", "key=x", "Bearer secret", "1.5", "7", `{"model":"m"}`)
	f.Add("GET", "/openai/v1/models", "", "bearer secret", "1m", "", "")
	f.Add("POST", "/openai//evil.test/v1/..%2f", "%zz=%", "Bearer secret", "NaN", "-1", "\x00")
	for _, path := range oddPaths {
		f.Add("POST", "/openai"+path, "", "Bearer secret", "", "", `{"model":"m"}`)
		f.Add("GET", "/openai"+path, "", "Bearer secret", "", "", "")
	}
	f.Add("POST", "/openai/@evil.test:80/v1/models", "key=secret&fields=x", "", "1e400", "9", `{`)
	f.Add("POST", "/openai/v1/chat/completions", "", "Bearer secret", "", "", `{"model":"f\u0061st"}`)
	f.Add("POST", "/openai/openai/deployments/fast/chat/completions", "", "Bearer secret", "", "", `{"model":null}`)
	u := &Upstream{Name: "openai", Profile: llm.OpenAI(), URL: &url.URL{
		Scheme: "https", Host: "provider.test",
		Path: "/base",
	}, Key: "the-key", Models: []Model{{Name: "*", Policy: "p"}}}
	up := &upstream{config: u}
	s := &state{
		upstreams: map[string]*upstream{"openai": up},
		aliases:   map[string]*Alias{"fast": {Name: "fast", Models: []Target{{Upstream: "openai", Model: "gpt-4o"}}}},
	}
	f.Fuzz(func(t *testing.T, method, path, query, authorization, timeout, priority, body string) {
		if !strings.HasPrefix(path, "/") {
			return
		}
		at, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		at.RawQuery = query
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Method, r.URL = method, at
		r.Header = http.Header{"Authorization": {authorization}, HeaderTimeout: {timeout}, HeaderPriority: {priority}}
		x := &exchange{
			h: &Handler{opts: Options{MaxBody: 1000, Bodies: 1000, Wait: time.Minute}}, state: s,
			ctx: t.Context(), asked: up, up: up, key: &Key{Name: "k", Priority: 5}, r: r,
		}
		x.w = httptest.NewRecorder()
		x.rc = http.NewResponseController(x.w)
		_ = secretOf(r)
		name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		if name != "openai" || x.options() != nil {
			return
		}
		plain, why := plainPath("/" + rest)
		if why != nil {
			return
		}
		if x.ask.level > 5 || x.ask.level < 0 || x.wait < 0 || x.wait > time.Minute {
			t.Fatalf("priority %d, wait %v", x.ask.level, x.wait)
		}
		data, why := x.readBody()
		if why != nil {
			return
		}
		c, why := x.parse(plain, data)
		if why != nil {
			return
		}
		if c.Model == "fast" || c.alias != "" && c.Model != "gpt-4o" {
			t.Fatalf("the alias %q passes as %q", c.alias, c.Model)
		}
		if !u.Profile.Documented(method, c.path) {
			t.Fatalf("%s %s passes", method, c.path)
		}
		out := x.request(c)
		if out.URL.Host != "provider.test" || out.Host != "provider.test" || out.URL.Scheme != "https" ||
			!strings.HasPrefix(out.URL.Path, "/base/") {
			t.Fatalf("it goes to %s", out.URL)
		}
		if slices.Contains(strings.Split(out.URL.Path, "/"), "..") || out.URL.Query().Has("key") {
			t.Fatalf("it goes to %s", out.URL)
		}
		if got := out.Header["Authorization"]; len(got) != 1 || got[0] != "Bearer the-key" {
			t.Fatalf("it is authorized by %q", got)
		}
		if again, err := url.Parse(out.URL.String()); err != nil || again.Host != out.URL.Host ||
			again.Path != out.URL.Path {
			t.Fatalf("%s is read as %v, %v", out.URL, again, err)
		}
	})
}
