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
		d.missing(e.at, "give it generic, which says where its requests and answers have what counts", "upstream %s has the profile generic without a description", shorten(u.Name))
	case u.Profile != profileGeneric && described:
		d.problem(e.at, "set profile: generic, or leave generic out", "upstream %s has a description, but the profile %s", shorten(u.Name), u.Profile)
	case described && u.URL == "":
		d.missing(e.at, "such as url: https://api.example.com", "upstream %s has no url", shorten(u.Name))
	case described:
		if u.Generic.Name == "" {
			u.Generic.Name = u.Name
		}
		if _, err := u.Provider(); err != nil {
			d.problem(e.at, "look at the paths: keys that are separated by dots, such as messages.*.content", "upstream %s: %s", shorten(u.Name), strings.TrimPrefix(err.Error(), "llm: "))
		}
	}
}

// generic reads a description of a provider.
func (d *decoder) generic(e entry) (g llm.Generic) {
	before := len(d.problems)
	seen := d.settings(e.value, "generic", "", genericSettings(&g, d))
	for _, key := range []string{"paths", "prompt", "model", "default"} {
		if !seen[key] && len(d.problems) == before {
			d.missing(spanOf(e.value), "such as {paths: /generate, model: model, prompt: prompt, default: {context: 32_000, max_output: 4000}}", "generic needs %s", key)
		}
	}
	return g
}

func genericSettings(g *llm.Generic, d *decoder) []setting {
	var limits node
	for i := range g.Limits {
		limits.list = append(limits.list, settingsNode(genericLimitSettings(&g.Limits[i], d)))
	}
	return []setting{
		{"name", func(e entry) { g.Name = d.short(e) }, textNode(g.Name)},
		{"units", func(e entry) {
			d.texts(e, maxGeneric, func(e entry) { g.Units = append(g.Units, d.genericUnit(e)) })
		}, texts(g.Units)},
		{"paths", func(e entry) { g.Paths = d.shorts(e) }, texts(g.Paths)},
		{"model", func(e entry) { g.Model = d.short(e) }, textNode(g.Model)},
		{"max_output", func(e entry) { g.MaxOutput = d.short(e) }, textNode(g.MaxOutput)},
		{"answers", func(e entry) { g.Answers = d.short(e) }, textNode(g.Answers)},
		{"stream", func(e entry) { g.Stream = d.short(e) }, textNode(g.Stream)},
		{"prompt", func(e entry) { g.Prompt = d.shorts(e) }, texts(g.Prompt)},
		{"messages", func(e entry) { g.Messages = d.short(e) }, textNode(g.Messages)},
		{"usage", func(e entry) { d.settings(e.value, "usage", "", genericUsageSettings(&g.Usage, d)) }, settingsNode(genericUsageSettings(&g.Usage, d))},
		{"text", func(e entry) { g.Text = d.shorts(e) }, texts(g.Text)},
		{"type", func(e entry) { g.Type = d.short(e) }, textNode(g.Type)},
		{"done", func(e entry) { g.Done = d.short(e) }, textNode(g.Done)},
		{"error", func(e entry) { g.Error = d.short(e) }, textNode(g.Error)},
		{"limits", func(e entry) { g.Limits = d.genericLimits(e) }, limits},
		{"default", func(e entry) { g.Default = d.genericModels(e) }, settingsNode(familySettings(&g.Default, d))},
	}
}

func genericUsageSettings(u *llm.GenericUsage, d *decoder) []setting {
	return []setting{
		{"input", func(e entry) { u.Input = d.short(e) }, textNode(u.Input)},
		{"cache_read", func(e entry) { u.CacheRead = d.short(e) }, textNode(u.CacheRead)},
		{"cache_write", func(e entry) { u.CacheWrite = d.short(e) }, textNode(u.CacheWrite)},
		{"output", func(e entry) { u.Output = d.short(e) }, textNode(u.Output)},
		{"reasoning", func(e entry) { u.Reasoning = d.short(e) }, textNode(u.Reasoning)},
		{"total", func(e entry) { u.Total = d.short(e) }, textNode(u.Total)},
		{"cache_apart", func(e entry) { u.CacheApart = d.boolean(e) }, flagNode(u.CacheApart)},
	}
}

func (d *decoder) genericLimits(e entry) (list []llm.GenericLimit) {
	items, _ := d.list(e, maxGeneric)
	for _, n := range items {
		var l llm.GenericLimit
		before := len(d.problems)
		seen := d.settings(n, "a limit", "", genericLimitSettings(&l, d))
		if (!seen["unit"] || !seen["limit"]) && len(d.problems) == before {
			d.missing(spanOf(n), "such as {unit: requests, limit: X-RateLimit-Limit}", "a limit needs unit, and limit, the header that tells its amount")
		}
		list = append(list, l)
	}
	return list
}

func genericLimitSettings(l *llm.GenericLimit, d *decoder) []setting {
	return []setting{
		{"unit", func(e entry) { l.Unit = d.genericUnit(e) }, textNode(l.Unit)},
		{"limit", func(e entry) { l.Limit = d.header(e) }, textNode(l.Limit)},
		{"remaining", func(e entry) { l.Remaining = d.header(e) }, textNode(l.Remaining)},
		{"reset", func(e entry) { l.Reset = d.header(e) }, textNode(l.Reset)},
	}
}

func (d *decoder) genericModels(e entry) (f llm.Family) {
	before := len(d.problems)
	seen := d.settings(e.value, "default", "", familySettings(&f, d))
	if (!seen["context"] || !seen["max_output"]) && len(d.problems) == before {
		d.missing(spanOf(e.value), "such as {context: 32_000, max_output: 4000}", "default needs context and max_output, in tokens")
	}
	return f
}

func familySettings(f *llm.Family, d *decoder) []setting {
	tokens := func(e entry) int64 { return d.integer(e, 1, drawgate.MaxAmount) }
	return []setting{
		{"context", func(e entry) { f.Context = tokens(e) }, numberNode(f.Context)},
		{"max_output", func(e entry) { f.MaxOutput = tokens(e) }, numberNode(f.MaxOutput)},
		{"cache_reads", func(e entry) { f.CacheReads = d.boolean(e) }, flagNode(f.CacheReads)},
		{"images", func(e entry) { f.Images = tokens(e) }, numberNode(f.Images)},
		{"audio", func(e entry) { f.Audio = tokens(e) }, numberNode(f.Audio)},
		{"video", func(e entry) { f.Video = tokens(e) }, numberNode(f.Video)},
		{"files", func(e entry) { f.Files = tokens(e) }, numberNode(f.Files)},
	}
}

// genericUnit reads a unit that profiles count.
func (d *decoder) genericUnit(e entry) string {
	return d.oneOf(e, drawgate.UnitRequests, llm.UnitTokens, llm.UnitInputTokens, llm.UnitOutputTokens)
}

// shorts reads a text, or a list of texts.
func (d *decoder) shorts(e entry) (list []string) {
	d.texts(e, maxGeneric, func(e entry) { list = append(list, d.short(e)) })
	return list
}
