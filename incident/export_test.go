package incident

import (
	"bytes"

	"github.com/drawgate/drawgate/api"
)

// Append writes an incident to a file that is rotated at most bytes.
func Append(path string, most int64, in *api.Incident) error {
	return (&file{path, most}).append(in)
}

// Change writes a new count.
func Change(path string, most int64, in *api.Incident) error {
	return (&file{path, most}).append(&change{in.ID, in.Count, in.Last, in.Until, in.NotPaused})
}

// Parse reads lines.
func Parse(text []byte) ([]api.Incident, int, error) {
	p := parser{at: map[string]int{}}
	err := p.read(bytes.NewReader(text))
	return p.list, p.skipped, err
}
