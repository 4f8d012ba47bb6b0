package similar_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/similar"
)

func TestTo(t *testing.T) {
	t.Parallel()
	names := []string{"amount", "anchor", "burst", "Zone", strings.Repeat("x", 300)}
	for _, c := range []struct {
		got  string
		most int
		want string
	}{
		{"amount", 0, "amount"},
		{"amout", 1, "amount"},   // one is missing
		{"amoount", 1, "amount"}, // one too many
		{"anchir", 1, "anchor"},  // another one
		{"bursts", 2, "burst"},
		{"busrt", 1, "burst"}, // swapped
		{"ZONE", 0, "Zone"},
		{"zone", 0, "Zone"},
		{"amt", 2, ""},
		{"anount", 0, ""},
		{strings.Repeat("x", 300), 2, ""}, // too long to compare
	} {
		if got := similar.To(c.got, names, c.most); got != c.want {
			t.Errorf("To(%q, %d) = %q, want %q", c.got, c.most, got, c.want)
		}
	}
	if got := similar.To("a", nil, 2); got != "" {
		t.Errorf("got %q of no names", got)
	}
}
