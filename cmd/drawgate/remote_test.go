package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// roundTrip is a way to a server.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that cannot be reached is named after a second, once, and not after several attempts.
func TestServerThatCannotBeReachedIsNamedAfterASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out syncBuffer
		p := &unreachedNotice{
			a: &app{errOut: &out, server: "http://192.0.2.1:7878"},
			base: roundTrip(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}),
		}
		for i := range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			_, err := p.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "http://192.0.2.1:7878/readyz", http.NoBody)) //nolint:bodyclose // nobody answers
			cancel()
			if err == nil {
				t.Error("somebody answered")
			}
			synctest.Wait()
			want := ""
			if i > 0 {
				want = "drawgate: http://192.0.2.1:7878 cannot be reached yet; trying again …\n"
			}
			if out.String() != want {
				t.Errorf("attempt %d: %q, want %q", i, out.String(), want)
			}
		}
	})
}
