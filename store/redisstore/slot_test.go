package redisstore

import (
	"fmt"
	"testing"

	"github.com/redis/rueidis"
)

// TestSlots compares slots with those of CLUSTER KEYSLOT.
func TestSlots(t *testing.T) {
	t.Parallel()
	b := (&rueidis.Builder{}).Get
	_ = b
	for _, c := range []struct {
		key  string
		slot uint16
	}{ // of CLUSTER KEYSLOT
		{"foo", 12182},
		{"123456789", 12739},
		{"", 0},
		{"a{foo}b", 12182},
		{"a{}foo", 16292},
		{"{foo", 13308},
		{"{foo}{bar}", 12182},
	} {
		if got := slotOf(c.key); got != c.slot {
			t.Errorf("%q: slot %d, want %d", c.key, got, c.slot)
		}
	}
}

// TestMarkKeys: each group of slots has one mark.
func TestMarkKeys(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"drawgate", "", "a:b/c", "x{y", "x}y"} {
		for g, key := range markKeys(prefix) {
			if slot := slotOf(key); int(slot)/(slots/markGroups) != g {
				t.Errorf("prefix %q: mark %d, %s, is in slot %d", prefix, g, key, slot)
			}
		}
	}
	if keys := markKeys("{a}"); len(keys) != 1 || slotOf(keys[0]) != slotOf(fmt.Sprint("{a}", "::p:k")) {
		t.Errorf("a prefix that fixes the slot: %q", keys)
	}
}
