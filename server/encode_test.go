package server_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/server"
)

// anything fills a value of any of our types.
func anything(t *rapid.T, v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMicro(rapid.Int64Range(-1e15, 1e17).Draw(t, "time")).UTC()))
		return
	case api.Millis:
		v.SetInt(rapid.OneOf(rapid.Int64Range(0, 1e12), rapid.Just(int64(api.Never))).Draw(t, "millis"))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range v.Fields() {
			anything(t, f)
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "some") {
			v.Set(reflect.New(v.Type().Elem()))
			anything(t, v.Elem())
		}
	case reflect.Slice:
		for range rapid.IntRange(0, 2).Draw(t, "n") {
			e := reflect.New(v.Type().Elem()).Elem()
			anything(t, e)
			v.Set(reflect.Append(v, e))
		}
	case reflect.String:
		v.SetString(rapid.OneOf(rapid.StringMatching(`[a-z~/:. -]{0,9}`), rapid.String()).Draw(t, "string"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	default:
		v.SetInt(rapid.Int64Range(-1e6, 1e12).Draw(t, "int"))
	}
}

func TestAnswersAreWrittenAsEncodingJSONDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a api.TakeAnswer
		anything(t, reflect.ValueOf(&a).Elem())
		want, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if got := server.AppendTakeAnswer(nil, &a); string(got) != string(want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// usual are requests that are read the fast way.
var usual = []string{
	`{}`, `{"policy":"llm","key":"user-17"}`, ` { "policy" : "llm" , "costs" : { "tokens" : 500 , "requests" : 0 } } `,
	`{"policy":"llm","tenant":"t","key":"k","costs":{"tokens":-5},"priority":3,"wait_ms":1,"hold_ms":999999999999999999,"id":"i","grant":"00000000000000a1","labels":{"a":"b","b":"b"}}`,
	`{"buckets":[{"policy":"a"},{}],"takes":[{"policy":"b","attributes":{}}]}`, `{"takes":[]}`, `{"costs":{}}`,
	`{"attributes":{"method":"GET","path":"/x","host":"h","route":"r","ip":"::1","user":"u","class":"c","headers":{"A":"b"},"attrs":{"x":"y"}}}`,
}

// odd are requests that are left to encoding/json, right or wrong.
var odd = []string{
	``, `null`, `[]`, `{"Policy":"llm"}`, `{"policy":null}`, `{"policy":"a\n"}`, `{"key":"ü"}`, "{\"key\":\"\x01\"}",
	`{"wait_ms":01}`, `{"wait_ms":1.0}`, `{"wait_ms":1e3}`,
	`{"wait_ms":-}`, `{"wait_ms":9223372036854775807}`, `{"wait_ms":true}`, `{"policy":"a",}`, `{"policy":"a"}x`,
	`{"policy":"a"`, `{"policy" "a"}`, `{"nope":1}`,
	`{"costs":null}`, `{"costs":{"a":1,"a":2}}`, `{"takes":[{}],"takes":[{}]}`, `{"takes":null}`, `{"takes":[{},]}`,
	`{"attributes":{},"attributes":{}}`, `{"labels":{"a":1}}`,
	`{"policy":"a","policy":"b"}`, `{"policy":"","policy":""}`, `{"labels":{"a":"b","a":"b"}}`,
	`{"takes":[{"key":"a","key":"a"}]}`,
}

// The fast way of reading is used where it should be, and never says anything else than the other.
func TestUsualRequestsAreReadFast(t *testing.T) {
	t.Parallel()
	for _, body := range usual {
		if _, ok := server.Scan([]byte(body)); !ok {
			t.Errorf("%s is read the long way", body)
		}
		same(t, body)
	}
	for _, body := range odd {
		if q, ok := server.Scan([]byte(body)); ok {
			t.Errorf("%s is read the fast way, as %+v", body, q)
		}
	}
}

// A name that is there twice, or in other letters, is refused wherever it stands, since no two
// programs agree on what it means.
func TestNamesAreExactAndThereOnce(t *testing.T) {
	t.Parallel()
	h := setup{}.make(t).AdminHandler()
	for _, c := range [][3]string{
		{"/v1/take", `{"policy":"llm","policy":"llm"}`, `"policy" is used twice`},
		{"/v1/take", `{"policy":"llm","Policy":"tiers"}`, `unknown field "Policy"`},
		{"/v1/take", `{"POLICY":"llm"}`, `unknown field "POLICY"`},
		// the sign of the kelvin, which encoding/json takes for a k
		{"/v1/take", "{\"\u212aey\":\"a\"}", "unknown field"},
		{"/v1/take", `{"policy":"llm","polic\u0079":"tiers"}`, `"policy" is used twice`},
		{"/v1/take", `{"policy":"llm","costs":{"tokens":1,"tokens":2}}`, `"tokens" is used twice`},
		{"/v1/take", `{"takes":[{"policy":"llm"},{"policy":"llm","labels":{"a":"b","a":"b"}}]}`, `"a" is used twice`},
		{"/v1/take", `{"buckets":[{"policy":"llm","key":"a","key":"b"}]}`, `"key" is used twice`},
		{"/v1/take", `{"attributes":{"ip":"::1","ip":"::2"}}`, `"ip" is used twice`},
		{"/v1/settle", `{"reservation":"a","used":{"tokens":1,"tokens":1}}`, `"tokens" is used twice`},
		{"/v1/status", `{"policy":"llm","key":"a","key":"b"}`, `"key" is used twice`},
		{"/v1/explain", `{"attributes":{"IP":"::1"}}`, `unknown field "IP"`},
		{"/v1/reset", `{"policy":"llm","keys":["a"],"keys":["b"]}`, `"keys" is used twice`},
		{"/v1/policies/llm/disable", `{"for_ms":1000,"for_ms":2000}`, `"for_ms" is used twice`},
	} {
		var p api.Problem
		w := ask(h, "POST", c[0], c[1])
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 400 || p.Code != api.CodeBadJSON ||
			!strings.Contains(p.Detail, c[2]) {
			t.Errorf("%s %s: %d %s", c[0], c[1], w.Code, w.Body)
		}
	}
	for _, body := range []string{
		`{"policy":"llm","costs":{"Tokens":1}}`,
		`{"attributes":{"headers":{"a":"b","c":"d"}}}`,
	} {
		if w := ask(h, "POST", "/v1/take", body); w.Code == 400 {
			t.Errorf("names of units and headers have letters as they like: %s %s", body, w.Body)
		}
	}
}

// same compares the two ways of reading a request.
func same(t *testing.T, body string) {
	t.Helper()
	got, ok := server.Scan([]byte(body))
	if !ok {
		return
	}
	want, p := server.Parse([]byte(body))
	if p != nil {
		t.Fatalf("%q: it was read as %+v, and is wrong: %v", body, got, p)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q: (-encoding/json +scan)\n%s", body, diff)
	}
}
