package gateway_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
)

// notShort leaves a test of the heap out by -short.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: moves hundreds of MiB")
	}
}

// heap returns how many bytes of memory are in use, without what can be collected.
func heap() int64 {
	var m runtime.MemStats
	for range 2 { // the second one empties pools
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// kept returns how many bytes more than before are in use and stay so: the least of several looks,
// because what goroutines make between a collection and the look is counted as well, until most.
func kept(before, most int64) int64 {
	least := heap() - before
	for i := 0; i < 20 && least > most; i++ {
		least = min(least, heap()-before)
	}
	return least
}

const mib = 1 << 20

// TestEndlessAnswersTakeLittleMemory: whatever a provider sends, and however it is called, a
// gateway keeps little of it: 16 MiB pass with less than 4 MiB in use, of which an answer for the
// cache may be one.
//
// req: C12
func TestEndlessAnswersTakeLittleMemory(t *testing.T) { // not parallel: it measures the heap
	needs.NoRace(t)
	notShort(t)
	const most, size = 4 * mib, int64(16 * mib)
	event := `data: {"choices":[{"index":0,"delta":{"content":"word"}}]}` + "\n\n"
	for name, c := range map[string]struct {
		first, again, kind string
		stream             bool
	}{
		"events": {event, event, "text/event-stream", true},
		"a line without end": {
			`data: {"choices":[{"index":0,"delta":{"content":"`, "word ", "text/event-stream",
			true,
		},
		"an event without end":    {event, "data: {}\n", "text/event-stream", true},
		"a name without end":      {"", "data", "text/event-stream", true},
		"comments":                {"", ": still there\n", "text/event-stream", true},
		"line ends":               {event, "\r", "text/event-stream", true},
		"usage without end":       {`data: {"usage":{`, `"a":`, "text/event-stream", true},
		"JSON without end":        {`{"choices":[{"message":{"content":"`, "word ", "application/json", false},
		"brackets":                {"", "[", "application/json", false},
		"a number without end":    {`{"usage":{"completion_tokens":`, "1", "application/json", false},
		"many keys":               {"{", `"usage":{"prompt_tokens":1},`, "application/json", false},
		"a stream that is a page": {"<html>", "word ", "text/html", true},
	} {
		sent, end := make(chan struct{}), make(chan struct{})
		b := newBench(t, func(s *setup) {
			s.options.Cache = 8 * mib // an answer may have an eighth of it
			s.config.Upstreams[0].Models[0].Cache = gateway.Cache{TTL: time.Hour}
			s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.kind)
				io.WriteString(w, c.first)
				piece := bytes.Repeat([]byte(c.again), 1+(64<<10)/len(c.again))
				for n := int64(0); n < size; n += int64(len(piece)) {
					w.Write(piece)
				}
				http.NewResponseController(w).Flush()
				close(sent)
				<-end
			})
		})
		before := heap()
		resp, err := b.server.Client().Do(b.request(t.Context(), "openai", c.stream, "Hello!"))
		if err != nil {
			t.Fatal(err)
		}
		n, _ := io.CopyN(io.Discard, resp.Body, size/2)
		used := kept(before, most)
		go io.Copy(io.Discard, resp.Body)
		<-sent
		used = max(used, kept(before, most))
		t.Logf("%s: %d bytes in use", name, used)
		if n != size/2 || used > most {
			t.Errorf("%s: %d bytes came, and %d are in use, want at most %d", name, n, used, most)
		}
		close(end)
		b.until("the call has ended", func() bool { return b.inside.Load() == 0 })
		resp.Body.Close()
		b.server.Close()
		b.behind.Close()
	}
}

// TestManyLargeRequestsTakeBoundedMemory: prompts of nearly 8 MiB, of which the gateway is to keep
// no more than 16 MiB, come at once and then stop. It keeps two, and refuses the others.
//
// req: C12
func TestManyLargeRequestsTakeBoundedMemory(t *testing.T) { // not parallel: it measures the heap
	needs.NoRace(t) // which sees large requests at once in TestManyLargeRequests
	notShort(t)
	const size, requests, most = 8 * mib, 16, 40 * mib // two, and what the loopback has
	b := newBench(t, func(s *setup) { s.options.MaxBody, s.options.Bodies = size, 2*size })
	before := heap()
	var group sync.WaitGroup
	statuses := make(chan int, requests)
	stopped := make(chan struct{})
	var sending sync.WaitGroup
	for i := range requests {
		sending.Add(1)
		body, pipe := io.Pipe()
		group.Go(func() {
			r := b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", "",
				"Authorization: Bearer "+[]string{alice, bob}[i%2])
			r.Body, r.ContentLength, r.GetBody = body, -1, nil
			got := b.do(r)
			body.Close() // whoever was refused need not send the rest
			statuses <- got.status
		})
		group.Go(func() {
			w := bufio.NewWriter(pipe)
			io.WriteString(w, `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"`)
			io.CopyN(w, endless{}, size-1000)
			w.Flush()
			sending.Done()
			<-stopped
			io.WriteString(pipe, `"}]}`)
			pipe.Close()
		})
	}
	sending.Wait()
	used := kept(before, most)
	close(stopped)
	group.Wait()
	close(statuses)
	all := map[int]int{}
	for s := range statuses {
		all[s]++
	}
	t.Logf("%d bytes in use; %v", used, all)
	if used > most || all[http.StatusOK] < 2 || all[http.StatusOK]+all[http.StatusServiceUnavailable] != requests {
		t.Errorf("%d bytes are in use, want at most %d; answers by status: %v", used, most, all)
	}
}

// TestLargeRequestsTakeTheirSize: requests that wait for their answers take little more memory than
// they have bytes, and when they have ended their memory is returned.
//
// req: C12
func TestLargeRequestsTakeTheirSize(t *testing.T) { // not parallel: it measures the heap
	needs.NoRace(t) // as above
	notShort(t)
	const size, requests = 8 * mib, 12
	held, end := make(chan struct{}, requests), make(chan struct{})
	b := newBench(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.CopyN(io.Discard, r.Body, size/2) // the rest is in the gateway
			held <- struct{}{}
			<-end
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, "{}")
		})
	})
	body := `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"` +
		string(bytes.Repeat([]byte("x"), size-1000)) + `"}]}`
	before := heap()
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	var group sync.WaitGroup
	for range requests {
		group.Go(func() {
			b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", body,
				"Authorization: Bearer "+alice))
		})
	}
	for range requests {
		<-held
	}
	runtime.ReadMemStats(&is)
	const sent = requests * size
	used, made := kept(before, sent*5/4), int64(is.TotalAlloc-was.TotalAlloc)
	runtime.ReadMemStats(&was)
	close(end)
	group.Wait()
	b.settled()
	t.Logf("%d MiB of requests: %d MiB in use, %d MiB were allocated", sent/mib, used/mib, made/mib)
	if used > sent*5/4 || made > sent*3/2 {
		t.Errorf("%d bytes are in use for %d bytes of requests, and %d were allocated", used, sent, made)
	}
	b.until("memory is returned", func() bool {
		runtime.ReadMemStats(&is)
		return is.NumForcedGC > was.NumForcedGC
	})
}
