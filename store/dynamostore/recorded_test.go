package dynamostore_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/recorded"
	"github.com/drawgate/drawgate/store/dynamostore"
)

var update = flag.Bool("update", false, "write the items of this version to testdata/records")

// TestItemsOfEarlierVersions reads what they wrote: items alone, and with the entries that several
// processes have added.
func TestItemsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	c, table := client(t, awstest.Dynalite(t))
	var now atomic.Int64
	advance := func(d time.Duration) { now.Add(d.Microseconds()) }
	open := func(prefix string) *dynamostore.Store {
		return dynamostore.NewWithClock(c, table, &dynamostore.Options{Prefix: prefix}, now.Load)
	}
	// fill returns a store with the steps done anew, and the prefix of its items.
	fill := func(file string) (s *dynamostore.Store, prefix string) {
		prefix = strings.TrimSuffix(filepath.Base(file), ".json")
		s = open(prefix)
		if strings.HasSuffix(prefix, "-contested") {
			s.Contest()
		}
		now.Store(recorded.Start().UnixMicro())
		recorded.Fill(t, s, advance)
		return s, prefix
	}
	if *update {
		for _, file := range []string{"testdata/records/0.1.json", "testdata/records/0.1-contested.json"} {
			_, prefix := fill(file)
			writeItems(t, c, table, prefix, file)
		}
		c, table = client(t, awstest.Dynalite(t))
	}
	files, err := filepath.Glob("testdata/records/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		fresh, prefix := fill(file)
		readItems(t, c, table, "was-"+prefix, file)
		recorded.Compare(t, open("was-"+prefix), fresh, advance)
	}
}

// attribute is one of an item: a number, bytes, or else a text. Maps, which are for people, are
// left out.
type attribute struct {
	N string `json:",omitempty"`
	B []byte `json:",omitempty"`
	S string `json:",omitempty"`
}

func writeItems(t *testing.T, c *dynamodb.Client, table, prefix, file string) {
	t.Helper()
	out, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]attribute{}
	for _, item := range out.Items {
		key := item[dynamostore.KeyAttribute].(*types.AttributeValueMemberS).Value
		rest, ours := strings.CutPrefix(key, prefix+":")
		if !ours {
			continue
		}
		all[rest] = map[string]attribute{}
		for name, v := range item {
			switch v := v.(type) {
			case *types.AttributeValueMemberN:
				all[rest][name] = attribute{N: v.Value}
			case *types.AttributeValueMemberB:
				all[rest][name] = attribute{B: v.Value}
			case *types.AttributeValueMemberS:
				all[rest][name] = attribute{S: v.Value}
			}
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

func readItems(t *testing.T, c *dynamodb.Client, table, prefix, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]attribute
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for key, attributes := range all {
		item := map[string]types.AttributeValue{}
		for name, a := range attributes {
			switch {
			case a.N != "":
				item[name] = &types.AttributeValueMemberN{Value: a.N}
			case a.B != nil:
				item[name] = &types.AttributeValueMemberB{Value: a.B}
			default:
				item[name] = &types.AttributeValueMemberS{Value: a.S}
			}
		}
		item[dynamostore.KeyAttribute] = &types.AttributeValueMemberS{Value: prefix + ":" + key}
		_, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item})
		if err != nil {
			t.Fatal(err)
		}
	}
}
