package sqlitestore

// OpenAt is Open with another clock, which says µs.
func OpenAt(path string, opts *Options, wall func() int64) (*Store, error) {
	return open(path, opts, wall)
}

// Exec runs SQL on a connection of its own, as another program would.
func Exec(path, sql string) error {
	c, err := dial(path, "rw")
	if err != nil {
		return err
	}
	err = c.script(sql)
	if cerr := c.close(); err == nil {
		err = cerr
	}
	return err
}
