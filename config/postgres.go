package config

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/pgstore"
)

// checkPrefixOfTables reports a prefix that cannot begin the names of tables.
func (c *Config) checkPrefixOfTables() Problems {
	if !IsPostgres(c.Store) {
		return nil
	}
	if err := pgstore.CheckPrefix(c.Prefix); err != nil {
		return Problems{c.note("prefix", err.Error(), "choose a shorter one")}
	}
	return nil
}

// entrySize is about what a take needs in a record, if the limit is exact.
const entrySize = 5

// warnLarge warns of exact limits whose buckets may need more than a row may have: takes are then
// refused although units are left.
func (c *Config) warnLarge() {
	if !IsPostgres(c.Store) {
		return
	}
	for i := range c.Policies {
		p := &c.Policies[i]
		for k := range p.Limits {
			l := &p.Limits[k]
			if l.Kind != drawgate.Rolling || l.Precision != drawgate.Exact || l.Amount <= pgstore.MostRecord/entrySize {
				continue
			}
			c.warnOf(limitSetting(p.Name, l.Name), "leave precision out, or make the amount smaller",
				"limit %s of policy %s is exact: %d takes need about %d bytes, and a bucket on PostgreSQL has at most %d: "+
					"more takes are then refused", shorten(l.Name), shorten(p.Name), l.Amount, l.Amount*entrySize,
				pgstore.MostRecord)
		}
	}
}
