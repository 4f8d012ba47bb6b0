package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestDamagedHistoryIsRepaired: a reset repairs a bucket whose history cannot be read, whatever is
// wrong with it.
func TestDamagedHistoryIsRepaired(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	nan, some := "\x00\x00\x00\x00\x00\x00\xf8\x7f", strings.Repeat("a", 8)
	for name, g := range map[string]string{
		"short":         "\x01\x00" + some,
		"long":          "\x01\x00" + some + some + "a",
		"no format":     "\x02\x00" + some + some,
		"no flags":      "\x01\x07" + some + some + some + some + some,
		"reset missing": "\x01\x01" + some + some,
		"huge clock":    "\x01\x00" + some + some,
		"no clock":      "\x01\x00" + some + nan,
		"no epoch":      "\x01\x00" + some + strings.Repeat("\x00", 8) + nan + nan + some + nan,
	} {
		b := takeOf(compile(t, "p", drawgate.RollingLimit("r", 10, time.Hour)), name, 1)
		take(t, s, b)
		set := c.B().Hset().Key(redisstore.KeyOf("drawgate", b.Buckets[0].Key)).FieldValue()
		if err := c.Do(t.Context(), set.FieldValue("g", rueidis.BinaryString([]byte(g))).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if tryTake(t.Context(), s, knowing(b, store.Known{})) == nil {
			t.Errorf("%s: it can be read", name)
		}
		if err := s.Reset(t.Context(), []store.Key{b.Buckets[0].Key}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := tryTake(t.Context(), s, knowing(b, store.Known{})); err != nil {
			t.Errorf("%s: after a reset: %v", name, err)
		}
	}
}
