package simulator

import (
	"fmt"
	"slices"
)

// Pacific is where Gemini's day ends.
const Pacific = "America/Los_Angeles"

// Short forms for the tables below.
func geminiLimits(minute, tokens, day int64) []Limit {
	return []Limit{
		{Name: "rpm", Dimension: Requests, Amount: minute, Window: Rolling, Scope: Project},
		{Name: "tpm", Dimension: InputTokens, Amount: tokens, Window: Rolling, Scope: Project},
		{Name: "rpd", Dimension: Requests, Amount: day, Window: Day, Zone: Pacific, Scope: Project},
	}
}

func openAILimits(minute, tokens int64) []Limit {
	return []Limit{
		{Name: "rpm", Dimension: Requests, Amount: minute, Window: Rolling},
		{Name: "tpm", Dimension: Tokens, Amount: tokens, Window: Rolling},
	}
}

func anthropicLimits(minute, input, output int64) []Limit {
	return []Limit{
		{Name: "rpm", Dimension: Requests, Amount: minute, Window: Bucket},
		{Name: "itpm", Dimension: InputTokens, Amount: input, Window: Bucket},
		{Name: "otpm", Dimension: OutputTokens, Amount: output, Window: Bucket},
	}
}

func gemini(name string, free bool, limits []Limit) Quota {
	return Quota{
		Provider: Gemini, Name: name, Models: []string{name, name + "-0*", name + "-preview*"}, FreeTier: free,
		Limits: limits,
	}
}

// gemini3 is one quota for the models of a kind, of which each has limits of its own.
func gemini3(kind string, free bool, limits []Limit) Quota {
	return Quota{
		Provider: Gemini, Name: "gemini-3-" + kind, Models: []string{"gemini-3*-" + kind + "*"},
		FreeTier: free, Limits: limits,
	}
}

// presets are numbers to test with, close to what new accounts had at the time that the comments
// say. Providers change them, and differ by account: use [Override], or quotas of your own.
var presets = map[string]func() []Quota{
	// What users reported in 2026, in January and for the newer models in September; their requests
	// per minute are made up. Google shows the true numbers only in AI Studio.
	"gemini-free": func() []Quota {
		return []Quota{
			gemini("gemini-2.5-pro", true, geminiLimits(5, 250_000, 100)),
			gemini("gemini-2.5-flash", true, geminiLimits(10, 250_000, 250)),
			gemini("gemini-2.5-flash-lite", true, geminiLimits(15, 250_000, 1000)),
			gemini3("flash-lite", true, geminiLimits(15, 250_000, 500)),
			gemini3("flash", true, geminiLimits(5, 250_000, 20)),
		}
	},
	// Of the size of a first paid tier in 2025.
	"gemini-paid": func() []Quota {
		return []Quota{
			gemini("gemini-2.5-pro", false, geminiLimits(150, 2_000_000, 10_000)),
			gemini("gemini-2.5-flash", false, geminiLimits(1000, 1_000_000, 10_000)),
			gemini("gemini-2.5-flash-lite", false, geminiLimits(4000, 4_000_000, 1_000_000)),
			gemini3("flash-lite", false, geminiLimits(4000, 4_000_000, 1_000_000)),
			gemini3("flash", false, geminiLimits(1000, 1_000_000, 10_000)),
			gemini3("pro", false, geminiLimits(150, 2_000_000, 10_000)),
		}
	},
	// Small numbers, of the size of the free tier in 2024.
	"openai-free": func() []Quota {
		day := Limit{Name: "rpd", Dimension: Requests, Amount: 200, Window: Day}
		return []Quota{
			{
				Provider: OpenAI, Name: "gpt-4o-mini", Models: []string{"gpt-4o-mini*"}, Shared: true,
				Limits: append(openAILimits(3, 40_000), day),
			},
			{
				Provider: OpenAI, Name: "embeddings", Models: []string{"text-embedding-3-*"},
				Limits: append(openAILimits(3, 40_000), day),
			},
		}
	},
	// Of the size of tier 1 in 2025. Refusals that users quote name the 30,000.
	"openai-paid": func() []Quota {
		return []Quota{
			{
				Provider: OpenAI, Name: "images", Models: []string{"gpt-image-*"}, Limits: []Limit{
					{Name: "tpm", Dimension: Tokens, Amount: 100_000, Window: Rolling},
					{Name: "ipm", Dimension: Images, Amount: 5, Window: Rolling},
				},
			},
			{
				Provider: OpenAI, Name: "gpt-mini", Models: []string{"gpt-*-mini*", "gpt-*-nano*"},
				Limits: append(openAILimits(500, 200_000), Limit{
					Name: "rpd", Dimension: Requests, Amount: 10_000,
					Window: Day,
				}),
			},
			{Provider: OpenAI, Name: "gpt", Models: []string{"gpt-*"}, Limits: openAILimits(500, 30_000)},
			{
				Provider: OpenAI, Name: "embeddings", Models: []string{"text-embedding-3-*"},
				Limits: openAILimits(3000, 1_000_000),
			},
			{
				Provider: OpenAI, Name: "moderations", Models: []string{"omni-moderation-*"},
				Limits: openAILimits(500, 10_000),
			},
		}
	},
	// Tier 1 as published early in 2026 (docs.claude.com/en/api/rate-limits).
	"anthropic-paid": func() []Quota {
		return []Quota{
			{
				Provider: Anthropic, Name: "opus", Models: []string{"claude-opus-*"}, Shared: true,
				Limits: anthropicLimits(50, 30_000, 8000),
			},
			{
				Provider: Anthropic, Name: "sonnet", Models: []string{"claude-sonnet-*"}, Shared: true,
				Limits: anthropicLimits(50, 30_000, 8000),
			},
			{
				Provider: Anthropic, Name: "haiku", Models: []string{"claude-haiku-*"}, Shared: true,
				Limits: anthropicLimits(50, 50_000, 10_000),
			},
		}
	},
}

// groups are presets of several providers.
var groups = map[string][]string{
	"free": {"gemini-free", "openai-free"},
	"paid": {"gemini-paid", "openai-paid", "anthropic-paid"},
}

// Presets returns the names of all presets, sorted.
func Presets() (names []string) {
	for name := range presets {
		names = append(names, name)
	}
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Preset returns the quotas of a preset. They are the caller's to change.
func Preset(name string) ([]Quota, error) {
	if quotas, ok := presets[name]; ok {
		return quotas(), nil
	}
	var all []Quota
	for _, part := range groups[name] {
		all = append(all, presets[part]()...)
	}
	if all == nil {
		return nil, fmt.Errorf("simulator: there is no preset %q (have: %s)", name, list(Presets()))
	}
	return all, nil
}
