package engine

import "strings"

// suggest ends a sentence about a name that is not known: with the one that was meant, if it is
// near, or otherwise with those that there are.
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
		return "; there is none at all"
	case len(among) > shown:
		return "; there are " + strings.Join(among[:shown], ", ") + " and others"
	}
	return "; there is " + strings.Join(among, ", ")
}

// distance returns how many bytes must be changed, added or left out to make b of a.
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
