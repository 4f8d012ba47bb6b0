package server_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/server"
)

// A take costs net/http some 25 allocations; the server must not add as many again.
func TestTakeAllocatesLittle(t *testing.T) {
	needs.NoRace(t)
	s := setup{config: benched()}.make(t)
	for _, c := range []struct {
		path, body string
		most       float64
	}{
		{"/v1/take", benchTake, 4},
		{"/v1/take", `{"attributes":{"method":"GET","path":"/v1/items","ip":"192.0.2.7"}}`, 12},
		{"/auth", "", 10},
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("X-Forwarded-Uri", "/v1/items")
		r.Header.Set("X-Forwarded-Method", "GET")
		in, w := &body{}, discard{http.Header{}}
		got := testing.AllocsPerRun(200, func() {
			in.Reset(c.body)
			r.Body = in
			clear(w.h)
			s.ServeHTTP(w, r)
		})
		if got > c.most {
			t.Errorf("%s %s: %v allocations, more than %v", c.path, c.body, got, c.most)
		}
	}
}

// A body of a mebibyte says hundreds of thousands of things that are hundreds of bytes each in
// memory: it is refused before they are made.
func TestLargeArraysTakeLittleMemory(t *testing.T) {
	h := setup{}.make(t).AdminHandler()
	crowd := func(before, element, after string) string {
		n := (api.MaxBody - len(before) - len(after)) / (len(element) + 1)
		return before + strings.Repeat(element+",", n-1) + element + after
	}
	const token = `{"v":1,"i":"a","e":1,"b":[`
	made := base64.RawURLEncoding.EncodeToString([]byte(crowd(token, "{}", "]}")[:api.MaxBody/2] + "{}]}"))
	for _, c := range []struct{ path, body string }{
		{"/v1/take", crowd(`{"takes":[`, "{}", "]}")},
		{"/v1/take", crowd(`{"t\u0061kes":[`, "{}", "]}")},
		{"/v1/take", crowd(`{"id":"\"[\n","takes":[`, "{}", "]}")},
		{"/v1/take", crowd(`{"takes":[`, "null", "]}")},
		{"/v1/take", crowd(`{"buckets":[`, "{}", "]}")},
		{"/v1/take", crowd(`{"key":"\n","buckets":[`, "{}", "]}")},
		{"/v1/take", crowd(`{"takes":[{"key":"\n","buckets":[{},`, "{}", "]}]}")},
		{"/v1/take", crowd(`{"unknown":[[]],"takes":[`, "{}", "]}")},
		{"/v1/explain", crowd(`{"buckets":[`, "{}", "]}")},
		{"/v1/reset", crowd(`{"policy":"llm","keys":[`, `""`, "]}")},
		{"/v1/reset", crowd(`{"policy":"llm","key":"\n","keys":[`, `"\n"`, "]}")},
		{"/v1/settle", `{"reservation":"` + made + `"}`},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := ask(h, "POST", c.path, c.body)
		runtime.ReadMemStats(&after)
		var p api.Problem
		text, most := "an array has more than 100 elements", uint64(8<<20) // to read the body takes five
		if c.path == "/v1/settle" {
			text, most = "not a reservation token", 12<<20
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 422 || !strings.Contains(p.Detail, text) {
			t.Errorf("%s %.40s: %d %s", c.path, c.body, w.Code, w.Body)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("%s %.40s: %d bytes of memory", c.path, c.body, n)
		}
	}
}

// As many as there may be are read by both ways, and one more by neither.
func TestBatchesAreReadUpToTheirBound(t *testing.T) {
	t.Parallel()
	h := setup{}.make(t)
	for n, want := range map[int]int{api.MaxTakes: 200, api.MaxTakes + 1: 422} {
		for _, field := range []string{"takes", "t\\u0061kes"} {
			takes := strings.Repeat(`{"policy":"llm"},`, n)
			body := `{"` + field + `":[` + takes[:len(takes)-1] + `]}`
			if _, fast := server.Scan([]byte(body)); fast != (want == 200 && field == "takes") {
				t.Errorf("%d %s: read the fast way: %v", n, field, fast)
			}
			if w := ask(h, "POST", "/v1/take", body); w.Code != want {
				t.Errorf("%d %s: %d %s", n, field, w.Code, w.Body)
			}
		}
	}
}
