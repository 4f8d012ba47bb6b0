// Package similar finds the name that somebody probably meant.
package similar

import "strings"

// longest is the longest name that is compared: more bytes would take long, and are no typing
// mistake.
const longest = 200

// To returns the first of the names that differ least from got, whatever their case; "" if all
// differ by more than most insertions, deletions, replacements and swaps of neighbours.
func To(got string, names []string, most int) (nearest string) {
	best := most + 1
	for _, n := range names {
		if len(got) > longest || len(n) > longest {
			continue
		}
		if d := distance(strings.ToLower(got), strings.ToLower(n)); d < best {
			best, nearest = d, n
		}
	}
	return nearest
}

// Suggest completes a message about an unknown name: with the name that was probably meant, if one
// is similar, or otherwise with the known names.
func Suggest(name string, among []string) string {
	const shown = 10
	meant := To(name, among, len(name)/2)
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

// distance is the number of insertions, deletions, replacements and swaps of neighbours that make a
// into b.
func distance(a, b string) int {
	before, previous, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, previous, row = previous, row, before
		row[0] = i + 1
		for j := range len(b) {
			replace := previous[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, previous[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
