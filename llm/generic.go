package llm

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// Generic describes a provider that has no profile here, by where its requests and responses have
// what matters.
//
// A path is a list of keys, separated by dots; "*" stands for every element of a list:
// "messages.*.content". A key is at most 64 letters, digits, "_" and "-".
type Generic struct {
	Name  string   // of the profile
	Units []string // that its quotas count; nil means requests and tokens
	Paths []string // ends of the URL paths of calls that count, such as "/generate"

	Model     string   // path of the model's name; "" if requests have none
	MaxOutput string   // path of the largest output in tokens
	Answers   string   // path of the number of answers
	Stream    string   // path of the flag that asks for a stream
	Prompt    []string // paths of what reaches the model: with everything below them. At least one
	Messages  string   // path of the elements of the list of messages, such as "messages.*"

	Usage GenericUsage
	Text  []string // paths of what is delivered, in a response and in the events of a stream
	Type  string   // path of an event's type
	Done  string   // the type of a stream's last event; [DONE] needs none
	Error string   // path of an error in a response

	Limits  []GenericLimit
	Default Family // what holds for its models; Context and MaxOutput are required
}

// GenericUsage are the paths of what a response says about usage.
type GenericUsage struct {
	Input, CacheRead, CacheWrite, Output, Reasoning, Total string

	// CacheApart says that Input is without what was read from and written to a cache.
	CacheApart bool
}

// GenericLimit names the headers that tell a limit. Reset is a duration such as 6m0s, a number of
// seconds, or an instant of RFC 3339.
type GenericLimit struct{ Unit, Limit, Remaining, Reset string }

// maxPaths bounds what a description may have.
const maxPaths = 32

// NewGeneric returns a profile for a provider by its description. Errors are read as OpenAI's, and
// refusals of ours are problem documents (RFC 9457).
func NewGeneric(g Generic) (*Profile, error) {
	if g.Name == "" || len(g.Prompt) == 0 || len(g.Paths) == 0 {
		return nil, errors.New("llm: a generic profile needs a Name, at least one of Paths, " +
			"and the path of at least one part of the Prompt")
	}
	if d := &g.Default; d.Context <= 0 || d.MaxOutput < 0 || d.Context > maxAmount || d.MaxOutput > maxAmount {
		return nil, fmt.Errorf("llm: profile %q needs the Context of its models in tokens, "+
			"and not a negative MaxOutput, got %d and %d", g.Name, d.Context, d.MaxOutput)
	}
	g.Units, g.Paths, g.Limits = slices.Clone(g.Units), slices.Clone(g.Paths), slices.Clone(g.Limits)
	if g.Units == nil {
		g.Units = []string{drawgate.UnitRequests, UnitTokens}
	}
	for _, n := range []*int64{&g.Default.Images, &g.Default.Audio, &g.Default.Video, &g.Default.Files} {
		if *n == 0 {
			*n = g.Default.Context
		}
	}
	v := g.provider()
	p := v.profile()
	p.Name, p.provider, p.location = g.Name, v, loadZone(p.ResetZone)
	var err error
	if p.request, err = g.requests(); err == nil {
		p.response, err = g.responses()
	}
	if err != nil {
		return nil, fmt.Errorf("llm: profile %q: %w", g.Name, err)
	}
	return p, nil
}

// provider returns what is known of the provider.
func (g *Generic) provider() *provider {
	ends := &pathEnds{}
	for _, path := range g.Paths {
		ends.list = append(ends.list, pathEnd{strings.TrimRight(path, "/"), OpGeneric})
	}
	v := &provider{
		name: g.Name,
		profile: func() *Profile {
			return &Profile{
				Units: g.Units, Default: g.Default, FailedInput: true, OutputAtStart: true, ResetZone: "UTC",
				CreditPause: creditPause, MinutePause: time.Minute, Correction: 1.1, LeastRatio: 0.5,
				Overhead: Overhead{
					Call: 4, CallBound: 64, Message: 4, MessageBound: 16,
					Tool: 16, ToolBound: 1024, Tools: 346, ToolsBound: 1024, Search: 10_000,
					Image: 1600, AudioBytes: 250, VideoBytes: 400, FileBytes: 50,
				},
			}
		},
		calls:      ends,
		atStart:    openAIAtStart, // the strictest that is known
		paths:      forms{calls: g.Paths, lists: []string{"/models", "/models/{:}"}},
		streamed:   streamedOnce,
		cacheApart: g.Usage.CacheApart,
		refusal:    openAIRefusal,
		errors: providerErrors{
			RateLimited:  {http.StatusTooManyRequests, "rate limited", ""},
			Unauthorized: {http.StatusUnauthorized, "unauthorized", ""},
			BadRequest:   {http.StatusBadRequest, "bad request", ""},
			Overloaded:   {http.StatusServiceUnavailable, "overloaded", ""},
			ServerError:  {http.StatusInternalServerError, "server error", ""},
			TimedOut:     {http.StatusGatewayTimeout, "timed out", ""},
			NotFound:     {http.StatusNotFound, "not found", ""},
			NoSuchPath:   {http.StatusNotFound, "not found", ""},
			Forbidden:    {http.StatusForbidden, "forbidden", ""},
			TooLarge:     {http.StatusRequestEntityTooLarge, "too large", ""},
			Unavailable:  {http.StatusServiceUnavailable, "unavailable", ""},
			Lost:         {http.StatusBadGateway, "upstream lost", ""},
			KeyExpired:   {http.StatusUnauthorized, "unauthorized", codeExpired},
			KeyDisabled:  {http.StatusUnauthorized, "unauthorized", codeDisabled},
			NoCredit:     {http.StatusTooManyRequests, "rate limited", codeCredit},
		},
		errorBody: func(e *providerError, message string, _ time.Duration) any { // RFC 9457
			body := map[string]any{"title": e.kind, "status": e.status, "detail": message}
			if e.code != "" {
				body["code"] = e.code
			}
			return body
		},
		errorType: "application/problem+json",
	}
	if g.Done != "" {
		v.lastEvents = []string{g.Done}
	}
	for _, l := range g.Limits {
		v.limits = append(v.limits, canonical(limitHeader{
			unit: l.Unit, limit: l.Limit, remaining: l.Remaining, reset: l.Reset,
		}))
	}
	return v
}

func (g *Generic) requests() (*node, error) {
	root := &node{role: reqRoot, rest: reqSkip}
	b := builder{root: root}
	for _, path := range g.Prompt {
		if n := b.at(path); n != nil {
			n.role, n.rest = reqText, reqText
		}
	}
	b.set(g.Messages, reqMessage)
	b.set(g.Model, reqModel)
	b.set(g.MaxOutput, reqMaxOutput)
	b.set(g.Answers, reqAnswers)
	b.set(g.Stream, reqStream)
	return root, b.err
}

func (g *Generic) responses() (*node, error) {
	root := &node{role: resDoc}
	b := builder{root: root}
	for _, path := range g.Text {
		b.set(path, resText)
	}
	u := &g.Usage
	for i, path := range [numUsage]string{
		useInput: u.Input, useCacheRead: u.CacheRead, useCacheWrite: u.CacheWrite, useOutput: u.Output,
		useReasoning: u.Reasoning, useTotal: u.Total,
	} {
		b.set(path, resUsage+role(i))
	}
	b.set(g.Type, resType)
	b.set(g.Error, resError)
	if g.Error != "" && b.err == nil {
		errorFields(b.at(g.Error), "type", "code", "status")
	}
	return root, b.err
}

// builder makes the nodes of paths, and remembers the first mistake.
type builder struct {
	root  *node
	paths int
	err   error
}

// at returns the node at a path, or nil.
func (b *builder) at(path string) *node {
	if b.err != nil || path == "" {
		return nil
	}
	keys := strings.Split(path, ".")
	b.paths++
	if len(keys) > maxPaths || b.paths > maxPaths {
		b.err = fmt.Errorf("there are more than %d paths or keys in a path", maxPaths)
		return nil
	}
	for _, k := range keys {
		if k != "*" && !plainKey(k) {
			b.err = fmt.Errorf("the path %.80q has a key that is not 1 to 64 letters, digits, _ or -", path)
			return nil
		}
	}
	return b.root.at(keys...)
}

func (b *builder) set(path string, r role) {
	n := b.at(path)
	switch {
	case n == nil:
	case n.role != 0 && n.role != reqText && n.role != r && n != b.root && len(n.kids) == 0 && n.each == nil:
		b.err = fmt.Errorf("the path %.80q has two meanings", path)
	default:
		n.role = r
	}
}

func plainKey(k string) bool {
	if k == "" || len(k) > 64 {
		return false
	}
	for _, c := range k {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
