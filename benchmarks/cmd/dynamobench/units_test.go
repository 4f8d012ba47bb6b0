package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestSizeOfAnItem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`{}`:                                    0,
		`{"id": {"S": "äb"}}`:                   2 + 3,
		`{"n": {"N": "0"}}`:                     1 + 1,
		`{"n": {"N": "1000"}}`:                  1 + 2,
		`{"n": {"N": "-12.345"}}`:               1 + 3 + 1 + 1,
		`{"n": {"N": "1795408200655"}}`:         1 + 7 + 1,
		`{"b": {"B": "AAECAw=="}}`:              1 + 4,
		`{"y": {"BOOL": true}}`:                 1 + 1,
		`{"y": {"NULL": true}}`:                 1 + 1,
		`{"m": {"M": {}}}`:                      1 + 3,
		`{"m": {"M": {"ab": {"S": "xyz"}}}}`:    1 + 3 + 1 + 2 + 3,
		`{"l": {"L": [{"S": "a"}, {"S": ""}]}}`: 1 + 3 + 2 + 1,
		`{"s": {"SS": ["ab", "c"]}}`:            1 + 3,
	} {
		var it item
		if err := json.Unmarshal([]byte(text), &it); err != nil {
			t.Fatal(err)
		}
		if got := it.size(); got != want {
			t.Errorf("size of %s: got %d, want %d", text, got, want)
		}
	}
}

// What requests cost, of an item of 5,000 bytes (5 write units, 2 read units) that an index has as
// well, and of one that does not exist.
func TestPrice(t *testing.T) {
	t.Parallel()
	big := fmt.Sprintf(`{"id": {"S": "big"}, "x": {"S": %q}, "i": {"S": "i"}}`, strings.Repeat("x", 5000-8))
	var it item
	if err := json.Unmarshal([]byte(big), &it); err != nil {
		t.Fatal(err)
	}
	tab := &table{key: []string{"id"}, indexes: [][]string{{"i"}, {"other"}}, items: map[string]item{}}
	tab.items[tab.keyText(it)] = it
	const key, none = `{"id": {"S": "big"}}`, `{"id": {"S": "none"}}`
	for _, c := range []struct {
		op, body string
		ok       bool
		want     capacity
	}{
		{"GetItem", `{"Key": ` + key + `, "ConsistentRead": true}`, true, capacity{2, 0, 0}},
		{"GetItem", `{"Key": ` + key + `}`, true, capacity{1, 0, 0}},
		{"GetItem", `{"Key": ` + none + `}`, true, capacity{.5, 0, 0}},
		{
			"BatchGetItem", `{"RequestItems": {"t": {"Keys": [` + key + `, ` + none + `], "ConsistentRead": true}}}`, true,
			capacity{3, 0, 0},
		},
		{"PutItem", `{"Item": ` + big + `}`, true, capacity{0, 5, 5}},
		{"PutItem", `{"Item": {"id": {"S": "small"}}}`, true, capacity{0, 1, 0}},
		{"PutItem", `{"Item": ` + big + `}`, false, capacity{0, 5, 0}},
		{"UpdateItem", `{"Key": ` + key + `}`, true, capacity{0, 5, 5}},
		{"DeleteItem", `{"Key": ` + none + `}`, true, capacity{0, 1, 0}},
		{"TransactWriteItems", `{"TransactItems": [{"Update": {"Key": ` + key +
			`}}, {"Put": {"Item": {"id": {"S": "small"}}}}]}`, true, capacity{0, 12, 10}},
	} {
		got, err := price([]request{{c.op, []byte(c.body), c.ok, 0}}, tab)
		if err != nil || got != c.want {
			t.Errorf("%s %.60s: got %+v, %v, want %+v", c.op, c.body, got, err, c.want)
		}
	}
	if _, err := price([]request{{"Query", []byte("{}"), true, 0}}, tab); err == nil {
		t.Error("the price of a Query is not known, but there is no error")
	}
}
