package config

// Incidents configures what is kept of calls that an upstream refused although the limits had
// allowed them.
type Incidents struct {
	File string // where they are appended; "" means [Config.IncidentsFile]'s default
}

func (n *Incidents) settings(d *decoder) []setting {
	return []setting{
		{"file", func(e entry) { n.File = d.short(e) }, textNode(n.File)},
	}
}

// besideStore is what the name of the default file has in addition to that of the database.
const besideStore = "-incidents.jsonl"

// IncidentsFile returns where incidents are appended: the configured file, or else one beside the
// SQLite database that is the store. "" means that they are in the log, and in memory, only.
func (c *Config) IncidentsFile() string {
	if c.Gateway.Incidents.File != "" {
		return c.Gateway.Incidents.File
	}
	if path, ok := SQLitePath(c.Store); ok {
		return path + besideStore
	}
	return ""
}
