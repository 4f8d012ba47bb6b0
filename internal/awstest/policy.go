package awstest

import (
	"time"

	"github.com/drawgate/drawgate"
)

// Gemini is the policy of config's preset gemini-translation-bucket, for tests of what config
// itself depends on. A test of config compares the two.
func Gemini() drawgate.Policy {
	const requests, tokens, perDay = 5, 250_000, 25
	return drawgate.Policy{
		Name: "gemini-translation-bucket",
		Limits: []drawgate.Limit{
			drawgate.BucketLimit("rpm", requests, time.Minute, requests),
			drawgate.BucketLimit("tpm", tokens, time.Minute, tokens).Of("input_tokens"),
			drawgate.CalendarLimit("rpd", perDay, drawgate.Day,
				"America/Los_Angeles").WithHeadroom(drawgate.Share{Units: 1}),
		},
		Wait: drawgate.Wait{Backoff: []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}},
		// While the store is unavailable, a process that starts goes on with a part of its share.
		Fallback: drawgate.FallbackShare, Start: drawgate.StartCold,
	}
}
