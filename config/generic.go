package config

import (
	"fmt"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

// profileGeneric is the profile of an upstream that the file describes.
const profileGeneric = "generic"

// maxGeneric bounds the lists of a description.
const maxGeneric = 32

// Provider returns what the upstream's provider counts, and how it says so.
func (u *Upstream) Provider() (*llm.Profile, error) {
	var p *llm.Profile
	if u.Profile == profileGeneric {
		var err error
		if p, err = llm.NewGeneric(u.Generic); err != nil {
			return nil, err
		}
	} else if p, _ = llm.ByName(u.Profile); p == nil {
		return nil, fmt.Errorf("config: upstream %q has the profile %q, which does not exist", u.Name, u.Profile)
	}
	if u.CreditPause > 0 {
		p.CreditPause = u.CreditPause
	}
	return p, nil
}

// checkGeneric checks an upstream's description of its provider, if there is one.
func (d *decoder) checkGeneric(e entry, u *Upstream, described bool) {
	switch {
	case u.Profile == profileGeneric && !described:
		d.missing(e.at, "give it generic, which says where its requests and answers have what counts",
			"upstream %s has the profile generic without a description", shorten(u.Name))
	case u.Profile != profileGeneric && described:
		d.problem(e.at, "set profile: generic, or leave generic out",
			"upstream %s has a description, but the profile %s", shorten(u.Name), u.Profile)
	case described && u.URL == "":
		d.missing(e.at, "such as url: https://api.example.com", "upstream %s has no url", shorten(u.Name))
	case described:
		if u.Generic.Name == "" {
			u.Generic.Name = u.Name
		}
		if _, err := u.Provider(); err != nil {
			d.problem(e.at, "look at the paths: keys that are separated by dots, such as messages.*.content",
				"upstream %s: %s", shorten(u.Name), strings.TrimPrefix(err.Error(), "llm: "))
		}
	}
}

var genericSection = &section[llm.Generic]{
	name: "generic", what: "generic", settings: genericSettings,
	lacks: "generic needs KEY",
	hint: "such as {paths: /generate, model: model, prompt: prompt, " +
		"default: {context: 32_000, max_output: 4000}}",
}

var (
	// asUnit is a unit that profiles count.
	asUnit = words(drawgate.UnitRequests, llm.UnitTokens, llm.UnitInputTokens, llm.UnitOutputTokens)
	// asPaths are paths of a URL, or in a request or an answer.
	asPaths = manyOf(asShort, maxGeneric, func(string) bool { return true }, texts[string])
)

func genericSettings(g *llm.Generic) []setting {
	return []setting{
		{"name", asShort.to(&g.Name), "the upstream's name", "what rules see as `attr(\"provider\")`"},
		{"units", oneOrMore(asUnit, maxGeneric).to(&g.Units), "`requests`, `tokens`", "what its quotas count, of " +
			"`requests`, `tokens`, `input_tokens` and `output_tokens`"},
		{"paths", asPaths.to(&g.Paths), required, "URL paths behind `url` of calls that count, such as `/generate`"},
		{"model", asShort.to(&g.Model), required, "path of the model's name in a request. A path is a list of keys, " +
			"separated by dots; `*` is every element of a list"},
		{"max_output", asShort.to(&g.MaxOutput), "the model's largest", "path of the largest output in tokens"},
		{"answers", asShort.to(&g.Answers), "one", "path of the number of answers"},
		{"stream", asShort.to(&g.Stream), "no stream", "path of the flag that asks for a stream"},
		{"prompt", asPaths.to(&g.Prompt), required, "paths of what reaches the model, with everything below them"},
		{"messages", asShort.to(&g.Messages), "one message", "path of the elements of the list of messages, such as " +
			"`messages.*`"},
		{"usage", usageSection.to(&g.Usage), "estimates stand", "paths in an answer, or in the events of a stream, " +
			"of what a call used"},
		{"text", asPaths.to(&g.Text), "", "paths of what is delivered, in an answer and in the events of a stream"},
		{"type", asShort.to(&g.Type), "", "path of an event's type"},
		{"done", asShort.to(&g.Done), "", "the type of a stream's last event; `[DONE]` needs none"},
		{"error", asShort.to(&g.Error), "", "path of an error in an answer"},
		{"limits", many(genericLimitSection, maxGeneric).to(&g.Limits), "", "headers that tell limits per minute"},
		{"default", familySection.to(&g.Default), required, "what holds for its models, in tokens"},
	}
}

var usageSection = &section[llm.GenericUsage]{name: "genericUsage", what: "usage", settings: genericUsageSettings}

func genericUsageSettings(u *llm.GenericUsage) []setting {
	return []setting{
		{"input", asShort.to(&u.Input), "", "path of the tokens of the prompt"},
		{"cache_read", asShort.to(&u.CacheRead), "", "path of the tokens of the prompt that were read from a cache"},
		{"cache_write", asShort.to(&u.CacheWrite), "", "path of the tokens of the prompt that were written to a cache"},
		{"output", asShort.to(&u.Output), "", "path of the tokens of the answer"},
		{"reasoning", asShort.to(&u.Reasoning), "", "path of the tokens of reasoning"},
		{"total", asShort.to(&u.Total), "", "path of the sum of all tokens"},
		{"cache_apart", asFlag.to(&u.CacheApart), no, "`input` is without what was read from and written to a cache"},
	}
}

var genericLimitSection = &section[llm.GenericLimit]{
	name: "genericLimit", what: "a limit", settings: genericLimitSettings,
	lacks: "a limit needs unit, and limit, the header that tells its amount",
	hint:  "such as {unit: requests, limit: X-RateLimit-Limit}",
}

func genericLimitSettings(l *llm.GenericLimit) []setting {
	return []setting{
		{"unit", asUnit.to(&l.Unit), required, "what the limit counts"},
		{"limit", asHeader.to(&l.Limit), required, "the header with the amount"},
		{"remaining", asHeader.to(&l.Remaining), "", "the header with what is left"},
		{"reset", asHeader.to(&l.Reset), "", "the header that says when all is back: a duration such as `6m0s`, a " +
			"number of seconds, or an instant of RFC 3339"},
	}
}

var familySection = &section[llm.Family]{
	name: "genericModel", what: "default", settings: familySettings,
	lacks: "default needs context and max_output, in tokens",
	hint:  "such as {context: 32_000, max_output: 4000}",
}

func familySettings(f *llm.Family) []setting {
	tokens := number[int64](1, drawgate.MaxAmount)
	return []setting{
		{"context", tokens.to(&f.Context), required, "the largest prompt"},
		{"max_output", tokens.to(&f.MaxOutput), required, "the largest answer, if a call does not say"},
		{"cache_reads", asFlag.to(&f.CacheReads), no, "what was read from a cache counts as input"},
		{"images", tokens.to(&f.Images), "`context`", "the most tokens of one image"},
		{"audio", tokens.to(&f.Audio), "`context`", "the most tokens of one sound"},
		{"video", tokens.to(&f.Video), "`context`", "the most tokens of one video"},
		{"files", tokens.to(&f.Files), "`context`", "the most tokens of one file"},
	}
}
