package engine

import "strings"

// suggest completes a message about an unknown name: with the name that was probably meant, if one
// is similar, or otherwise with the known names.
func suggest(name string, among []string) string {
	const shown = 10
	best, at := len(name)/2+1, ""
	for _, a := range among {
		if d := distance(strings.ToLower(name), strings.ToLower(a)); d < best {
			best, at = d, a
		}
	}
	switch {
	case at != "":
		return `; did you mean "` + at + `"?`
	case len(among) == 0:
		return " (there are none)"
	case len(among) > shown:
		return " (have: " + strings.Join(among[:shown], ", ") + ", …)"
	}
	return " (have: " + strings.Join(among, ", ") + ")"
}

// distance returns how many bytes must be changed, added or removed to turn a into b.
func distance(a, b string) int {
	if len(a) > 200 || len(b) > 200 {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			same := before
			if a[i] != b[j] {
				same++
			}
			before = row[j+1]
			row[j+1] = min(same, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
