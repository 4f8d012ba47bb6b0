package snsnotify_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

// Whatever is in an incident, SNS can accept what is made of it: a subject of 1 to 99 printable
// ASCII characters, at most 256 KiB of JSON, attributes that are not empty. The essential fields
// stay, and of the calls the newest.
func TestEveryIncidentFits(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.StringN(0, 5, -1),
		rapid.Map(rapid.SampledFrom([]int{50, 200, 1000, 1000, 100_000}),
			func(n int) string { return strings.Repeat("ü", n) }))
	takes := rapid.SampledFrom([]int{0, 1, 3, 50, 50, 1500})
	rapid.Check(t, func(t *rapid.T) {
		in := api.Incident{
			ID: "20260701T120000000Z-k3f7q2xa", At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC),
			Severity: text.Draw(t, "severity"), Upstream: text.Draw(t, "upstream"),
			Model: text.Draw(t, "model"), Meaning: "minute", Summary: text.Draw(t, "summary"), Count: 3, Concurrent: 14,
			Limits: make([]api.Limit, takes.Draw(t, "limits")), Takes: make([]api.IncidentTake, takes.Draw(t, "takes")),
		}
		for range rapid.IntRange(0, 5).Draw(t, "diagnoses") {
			in.Diagnosis = append(in.Diagnosis, text.Draw(t, "diagnosis"))
		}
		if len(in.Takes) > 0 {
			in.Takes[len(in.Takes)-1].Model = "newest"
		}
		p, err := snsnotify.Input("arn", &in)
		if err != nil {
			t.Fatal(err)
		}
		checkInput(t, p)
		var got api.Incident
		if err := json.Unmarshal([]byte(*p.Message), &got); err != nil {
			t.Fatal(err)
		}
		if got.ID != in.ID || !got.At.Equal(in.At) || got.Count != 3 || got.Concurrent != 14 {
			t.Fatalf("got %+v", got)
		}
		if len(got.Takes) > 0 && got.Takes[len(got.Takes)-1].Model != "newest" {
			t.Fatalf("the newest call was left out of %d", len(in.Takes))
		}
		whole := len(got.Takes) == len(in.Takes) && len(got.Limits) == len(in.Limits) &&
			len(got.Diagnosis) == len(in.Diagnosis)
		if _, shortened := p.MessageAttributes["shortened"]; !whole && !shortened {
			t.Fatal("it was shortened, but does not say so")
		}
	})
}

// checkInput checks SNS's bounds.
func checkInput(t *rapid.T, p *sns.PublishInput) {
	size := len(*p.Message)
	for name, a := range p.MessageAttributes {
		if *a.StringValue == "" {
			t.Fatalf("attribute %s is empty", name)
		}
		size += len(name) + len(*a.DataType) + len(*a.StringValue)
	}
	if size > 256<<10 {
		t.Fatalf("the message has %d bytes", size)
	}
	s := *p.Subject
	if len(s) == 0 || len(s) > 99 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Fatalf("the subject is %q", s)
	}
}

// The subject says what happened, in one line that fits.
func TestSubject(t *testing.T) {
	t.Parallel()
	for summary, want := range map[string]string{
		"openai refused a call of gpt-4.1 for its limit per minute (requests), although our limits had allowed it": "Drawgate: openai refused a call of gpt-4.1 for its limit per minute (requests)",
		"openai refused a call of gpt-4.1 for missing credit":                                                      "Drawgate: openai refused a call of gpt-4.1 for missing credit",
		"a\nb\u00fc": "Drawgate: a?b?",
		"":           "Drawgate: incident ID",
		"a call of " + strings.Repeat("m", 200) + " was refused": "Drawgate: a call of " + strings.Repeat("m", 76) +
			"...",
	} {
		p, err := snsnotify.Input("arn", &api.Incident{ID: "ID", Summary: summary})
		if err != nil || *p.Subject != want {
			t.Errorf("%q: got %q, %v, want %q", summary, *p.Subject, err, want)
		}
	}
}

// The calls go first, the oldest of them before the others; what was left of the limits goes last.
func TestHistoryIsShortenedFirst(t *testing.T) {
	t.Parallel()
	in := &api.Incident{ID: "ID", Summary: "s", Limits: []api.Limit{{Name: "rpm"}}, Now: &api.StatusAnswer{Policy: "p"}}
	for range 4000 {
		in.Takes = append(in.Takes, api.IncidentTake{Model: "m"})
	}
	p, err := snsnotify.Input("arn", in)
	if err != nil {
		t.Fatal(err)
	}
	var got api.Incident
	if err := json.Unmarshal([]byte(*p.Message), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Takes) != 2000 || got.Now == nil || len(got.Limits) != 1 ||
		*p.MessageAttributes["shortened"].StringValue != "true" {
		t.Errorf("%d calls, now %v, limits %v, attributes %v", len(got.Takes), got.Now, got.Limits, p.MessageAttributes)
	}
}
