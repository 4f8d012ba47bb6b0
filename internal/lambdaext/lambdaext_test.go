package lambdaext_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/lambdaext"
)

// lambda answers as its map says, and notes what it was asked.
type lambda struct {
	answers map[string]string // by path; a status other than 200 stands before the first space
	asked   []string
}

func (l *lambda) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/2020-01-01/extension/")
	h := r.Header
	l.asked = append(l.asked, fmt.Sprintf("%s %s %s %s %s %s", r.Method, path, h.Get("Lambda-Extension-Name"),
		h.Get("Lambda-Extension-Identifier"), h.Get("Lambda-Extension-Function-Error-Type"), body))
	if path == "register" && l.answers["identifier"] != "" {
		w.Header().Set("Lambda-Extension-Identifier", l.answers["identifier"])
	}
	answer := l.answers[path]
	var status int
	if n, _ := fmt.Sscanf(answer, "%d ", &status); n == 1 {
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, answer)
}

func serve(t *testing.T, l *lambda) *lambdaext.Client {
	t.Helper()
	s := httptest.NewServer(l)
	t.Cleanup(s.Close)
	return lambdaext.New(strings.TrimPrefix(s.URL, "http://"), "drawgate")
}

// The requests have what Lambda's documentation asks for.
func TestRequests(t *testing.T) {
	t.Parallel()
	l := &lambda{answers: map[string]string{
		"identifier": "7",
		"event/next": `{"eventType":"INVOKE","deadlineMs":1500,"tracing":{}}`, "exit/error": "202 {}",
	}}
	c := serve(t, l)
	ctx := t.Context()
	if err := c.Register(ctx); err != nil {
		t.Fatal(err)
	}
	e, err := c.Next(ctx)
	if err != nil || e.Kind != lambdaext.Invoke || !e.Deadline.Equal(time.UnixMilli(1500)) {
		t.Errorf("got %+v, %v", e, err)
	}
	if err := c.Fail(ctx, "Extension.UnknownReason", "it broke"); err != nil {
		t.Error(err)
	}
	want := []string{
		`POST register drawgate   {"events":["INVOKE","SHUTDOWN"]}`,
		`GET event/next  7  `,
		`POST exit/error  7 Extension.UnknownReason {"errorMessage":"it broke","errorType":"Extension.UnknownReason","stackTrace":[]}`,
	}
	if !slices.Equal(l.asked, want) {
		t.Errorf("it asked\n%s\nwant\n%s", strings.Join(l.asked, "\n"), strings.Join(want, "\n"))
	}
}

// An extension that cannot start registers before it says so.
func TestFailAtTheStart(t *testing.T) {
	t.Parallel()
	l := &lambda{answers: map[string]string{"identifier": "7", "init/error": "202 {}"}}
	if err := serve(t, l).Fail(t.Context(), "Extension.ConfigInvalid", "there is no file"); err != nil {
		t.Error(err)
	}
	if len(l.asked) != 2 || !strings.HasPrefix(l.asked[0], "POST register") ||
		!strings.HasPrefix(l.asked[1], "POST init/error  7 Extension.ConfigInvalid") {
		t.Errorf("it asked %q", l.asked)
	}
}

// What Lambda answers otherwise is an error.
func TestErrors(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]map[string]string{
		"Lambda answers register with status 403: 403 no": {"register": "403 no"},
		"names no extension":                              {},
		"Lambda answers event/next with status 500":       {"identifier": "7", "event/next": "500 "},
		"read an event":                                   {"identifier": "7", "event/next": "{"},
	} {
		c := serve(t, &lambda{answers: answers})
		err := c.Register(t.Context())
		if err == nil {
			_, err = c.Next(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

// Next ends with its context.
func TestNextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer s.Close()
	if _, err := lambdaext.New(strings.TrimPrefix(s.URL, "http://"), "drawgate").Next(ctx); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
}
