package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestBodiesAreFreedWhenTheirAnswersBegin: an answer that lasts does not keep others from being
// served, however large its request was.
//
// req: C12
func TestBodiesAreFreedWhenTheirAnswersBegin(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	b := newBench(t, func(s *setup) {
		s.options.MaxBody, s.options.Bodies = 4000, 4000
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-end
		})
	})
	defer close(end)
	prompt := strings.Repeat("word ", 600)
	for i := range 3 {
		resp, err := b.server.Client().Do(b.request(t.Context(), "openai", true, prompt))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 6)); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %d, %v", i, resp.StatusCode, err)
		}
	}
}
