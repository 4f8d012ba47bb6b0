package main

import (
	"path/filepath"

	"github.com/drawgate/drawgate/release/wheel"
)

// wheels writes the packages for Python: the client, and the program for each target.
func (r *release) wheels() error {
	o := &wheel.Options{
		Version: r.version, Python: filepath.Join(r.root, "python"), Notices: r.docs.notices, Time: r.time, Out: r.out,
	}
	if _, err := o.Client(); err != nil {
		return err
	}
	for _, t := range r.targets {
		if _, err := o.Server(r.program(t)); err != nil {
			return err
		}
	}
	return nil
}
