package redisstore_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/recorded"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/redisstore"
)

var update = flag.Bool("update", false, "write the records of this version to testdata/records")

// TestRecordsOfEarlierVersions reads what they wrote.
//
// req: D6
func TestRecordsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	c, clock := client(t, redistest.Start(t)), newClock()
	fresh := redisstore.NewWithClock(c, &redisstore.Options{Prefix: "is"}, clock.now)
	filled := func() {
		t.Helper()
		clock.us.Store(recorded.Start().UnixMicro())
		recorded.Fill(t, fresh, clock.advance)
	}
	if *update {
		filled()
		writeRecords(t, c, "testdata/records/0.1.json")
	}
	files, err := filepath.Glob("testdata/records/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := c.Do(t.Context(), c.B().Flushall().Build()).Error(); err != nil {
			t.Fatal(err)
		}
		readRecords(t, c, file)
		filled()
		was := redisstore.NewWithClock(c, &redisstore.Options{Prefix: "was"}, clock.now)
		recorded.Compare(t, was, fresh, clock.advance)
	}
}

// records are hashes by the rest of their key. Names and values of fields are any bytes.
type records map[string][]field

type field struct{ Name, Value []byte }

func writeRecords(t *testing.T, c rueidis.Client, file string) {
	t.Helper()
	all := records{}
	keys, err := c.Do(t.Context(), c.B().Keys().Pattern("is:*").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		fields, err := c.Do(t.Context(), c.B().Hgetall().Key(key).Build()).AsStrMap()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			all[key[len("is"):]] = append(all[key[len("is"):]], field{[]byte(name), []byte(fields[name])})
		}
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readRecords(t *testing.T, c rueidis.Client, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all records
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for key, fields := range all {
		set := c.B().Hset().Key("was" + key).FieldValue()
		for _, f := range fields {
			set = set.FieldValue(string(f.Name), string(f.Value))
		}
		if err := c.Do(t.Context(), set.Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
}
