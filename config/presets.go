package config

import (
	"embed"
	"fmt"
	"strings"
)

// The names of the presets.
const (
	MultiTier               = "multi-tier"                // minute to month on one machine, exact
	GeminiFree              = "gemini-free"               // two models inside a free tier
	Global                  = "global"                    // one bucket for everything
	HTTPAPI                 = "http-api"                  // per address, API, user and task
	GeminiTranslation       = "gemini-translation"        // requests, tokens and a daily quota; never exceeded
	GeminiTranslationBucket = "gemini-translation-bucket" // the same as token buckets
)

//go:embed presets/*.yaml
var presetFiles embed.FS

// Presets returns the names of all presets.
func Presets() []string {
	return []string{MultiTier, GeminiFree, Global, HTTPAPI, GeminiTranslation, GeminiTranslationBucket}
}

// Preset returns a preset as a file to start from, with comments.
func Preset(name string) ([]byte, error) {
	data, err := presetFiles.ReadFile("presets/" + name + ".yaml")
	if err != nil {
		hint, _ := didYouMean(name, Presets())
		return nil, fmt.Errorf("config: preset %q is not one of %s %s", name, strings.Join(Presets(), ", "), hint)
	}
	return data, nil
}

// preset reads a preset. Explain names "preset NAME" as the source of its values.
func preset(name string) (*Config, []Problem) {
	data, err := Preset(name)
	if err != nil {
		return nil, []Problem{{File: "preset", Message: err.Error()}}
	}
	c, problems := Parse("preset "+name, data)
	if c != nil {
		for setting := range c.origins {
			c.origins[setting] = "preset " + name
		}
		for i := range c.places {
			c.places[i].from = "preset " + name
		}
	}
	return c, problems
}
