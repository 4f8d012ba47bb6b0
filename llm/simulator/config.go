package simulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Config is a file for a simulator, as JSON. Durations are text such as "1m30s".
type Config struct {
	// Preset names quotas to begin with: see [Preset].
	Preset string `json:"preset,omitempty"`
	// Quotas come before those of the preset, so that they decide about their models.
	Quotas []Quota `json:"quotas,omitempty"`
	// Limits changes amounts of limits, named as QUOTA/LIMIT.
	Limits map[string]int64 `json:"limits,omitempty"`
	// Windows, Zone, Keys, Charging, Faults, Seed and Travel are those of [Options].
	Windows  Window                `json:"windows,omitempty"`
	Zone     string                `json:"zone,omitempty"`
	Keys     []Key                 `json:"keys,omitempty"`
	Charging map[Provider]Charging `json:"charging,omitempty"`
	Faults   []Fault               `json:"faults,omitempty"`
	Seed     uint64                `json:"seed,omitempty"`
	Travel   Duration              `json:"travel,omitempty"`
}

// ParseConfig reads a file. Unknown names are errors.
func ParseConfig(text []byte) (*Config, error) {
	c := &Config{}
	if err := strict(text, c); err != nil {
		return nil, fmt.Errorf("simulator: the configuration cannot be read: %w", err)
	}
	return c, nil
}

// Options returns what [New] needs.
func (c *Config) Options() (*Options, error) {
	quotas := append([]Quota{}, c.Quotas...)
	if c.Preset != "" {
		preset, err := Preset(c.Preset)
		if err != nil {
			return nil, err
		}
		quotas = append(quotas, preset...)
	}
	for name, amount := range c.Limits {
		if err := Override(quotas, name, amount); err != nil {
			return nil, err
		}
	}
	return &Options{
		Quotas: quotas, Windows: c.Windows, Zone: c.Zone, Keys: c.Keys, Charging: c.Charging, Faults: c.Faults,
		Seed: c.Seed, Travel: time.Duration(c.Travel),
	}, nil
}

// strict decodes one JSON value, and nothing else.
func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows after its end")
	}
	return nil
}

// Duration is a duration that files write as text, such as "1m30s".
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	*d = Duration(t)
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalJSON reads a limit, with its period as text such as "1m".
func (l *Limit) UnmarshalJSON(text []byte) error {
	type plain Limit
	v := struct {
		*plain
		Period Duration `json:"period"`
	}{plain: (*plain)(l)}
	if err := strict(text, &v); err != nil {
		return err
	}
	l.Period = time.Duration(v.Period)
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (l Limit) MarshalJSON() ([]byte, error) {
	type plain Limit
	return json.Marshal(struct {
		plain
		Period Duration `json:"period,omitempty"`
	}{plain(l), Duration(l.Period)})
}
