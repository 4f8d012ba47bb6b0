package fromlitellm

// table reads a mapping whose keys are known one by one, and notes those that nobody asked for.
type table struct {
	*value
	what string // for notes
	seen map[string]bool
}

func newTable(v *value, what string) *table {
	if v == nil {
		v = &value{kind: isTable}
	}
	return &table{v, what, map[string]bool{}}
}

// get returns the value of a key, as of a value; it is not noted.
func (t *table) get(key string) *value {
	t.seen[key] = true
	return t.value.get(key)
}

// rest notes all keys that were not read, unless they are empty: with their reason, or as unknown.
// A reason of "" is of what changes nothing here.
func (c *conversion) rest(t *table, reasons map[string]string) {
	for _, p := range t.keys {
		if t.seen[p.key] || p.empty() {
			continue
		}
		why, known := reasons[p.key]
		switch {
		case !known:
			c.leave(p.value, t.what+": "+show(p.key), "this setting is not known here")
		case why != "":
			c.leave(p.value, t.what+": "+show(p.key), "%s", why)
		}
	}
}
