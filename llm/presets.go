package llm

import (
	"time"

	"github.com/drawgate/drawgate"
)

// Preset is a policy for one plan of a provider, as an example: published numbers change, and the
// account's own page has the right ones. Every number may be replaced.
type Preset struct {
	Name    string
	Profile string // of the provider
	Source  string // where the numbers come from
	Date    string // when they were read: a month or a day
	Policy  drawgate.Policy
}

// upstreamMargin is how long a call may take from the decision to the provider.
const upstreamMargin = 2 * time.Second

const pacific = "America/Los_Angeles"

// Presets returns examples of policies for providers' plans.
func Presets() []Preset {
	twenty := drawgate.Percent(20)
	return []Preset{
		geminiPreset("gemini-2.5-flash", "free tier, several reports of users", "2026-01",
			upstream(drawgate.RollingLimit("rpm", 10, time.Minute).WithHeadroom(twenty)),
			upstream(drawgate.CalendarLimit("rpd", 250, drawgate.Day, pacific).WithHeadroom(twenty))),
		geminiPreset("gemini-2.5-pro", "free tier, several reports of users", "2026-01",
			upstream(drawgate.RollingLimit("rpm", 5, time.Minute).WithHeadroom(twenty)),
			upstream(drawgate.CalendarLimit("rpd", 100, drawgate.Day, pacific).WithHeadroom(twenty))),
		geminiPreset("gemini-translation", "a small quota that many workers share", "2026-01",
			upstream(drawgate.RollingLimit("rpm", 5, time.Minute)),
			upstream(drawgate.RollingLimit("tpm", 250_000, time.Minute).Of(UnitInputTokens)),
			upstream(drawgate.CalendarLimit("rpd", 25, drawgate.Day, pacific).WithHeadroom(drawgate.Share{Units: 1}))),
		geminiPreset("gemini-2.5-flash-tier1", "ai.google.dev/gemini-api/docs/quota, before the table was removed", "2025-05",
			upstream(drawgate.RollingLimit("rpm", 1000, time.Minute)),
			upstream(drawgate.RollingLimit("tpm", 1_000_000, time.Minute).Of(UnitInputTokens)),
			upstream(drawgate.CalendarLimit("rpd", 10_000, drawgate.Day, pacific))),
		{
			Name: "openai-gpt-4.1-tier1", Profile: "openai", Source: "errors that users quote (30,000 TPM), several reports (500 RPM)", Date: "2026-06",
			Policy: drawgate.Policy{Name: "openai-gpt-4.1-tier1", Limits: []drawgate.Limit{
				upstream(drawgate.RollingLimit("rpm", 500, time.Minute)),
				upstream(drawgate.RollingLimit("tpm", 30_000, time.Minute).Of(UnitTokens)),
				// The reset values in its headers hint at a bucket: both are held, the tighter one
				// wins.
				drawgate.BucketLimit("rpm-bucket", 500, time.Minute, 0),
				drawgate.BucketLimit("tpm-bucket", 30_000, time.Minute, 0).Of(UnitTokens),
			}},
		},
		{
			Name: "anthropic-sonnet-4-tier1", Profile: "anthropic", Source: "docs.anthropic.com/en/api/rate-limits", Date: "2026-02",
			Policy: drawgate.Policy{Name: "anthropic-sonnet-4-tier1", Limits: []drawgate.Limit{
				// A bucket that refills all the time, and may be enforced per second.
				upstream(drawgate.BucketLimit("rpm", 50, time.Minute, 0)),
				upstream(drawgate.RollingLimit("rpm-window", 50, time.Minute)),
				upstream(drawgate.RollingLimit("itpm", 30_000, time.Minute).Of(UnitInputTokens)),
				upstream(drawgate.RollingLimit("otpm", 8000, time.Minute).Of(UnitOutputTokens)),
			}},
		},
	}
}

func geminiPreset(name, source, date string, limits ...drawgate.Limit) Preset {
	return Preset{Name: name, Profile: "gemini", Source: source, Date: date, Policy: drawgate.Policy{Name: name, Limits: limits}}
}

// upstream makes a limit one that the provider counts as well.
func upstream(l drawgate.Limit) drawgate.Limit {
	l.Margin = upstreamMargin
	return l
}
