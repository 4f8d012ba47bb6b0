package engine

import (
	"strings"

	"github.com/drawgate/drawgate/internal/similar"
)

// suggest completes a message about an unknown name: with the name that was probably meant, if one
// is similar, or otherwise with the known names.
func suggest(name string, among []string) string {
	const shown = 10
	meant := similar.To(name, among, len(name)/2)
	switch {
	case meant != "":
		return `; did you mean "` + meant + `"?`
	case len(among) == 0:
		return " (there are none)"
	case len(among) > shown:
		return " (have: " + strings.Join(among[:shown], ", ") + ", …)"
	}
	return " (have: " + strings.Join(among, ", ") + ")"
}
