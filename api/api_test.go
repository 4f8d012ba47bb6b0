package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/api"
)

// The names on the wire are a promise: other languages spell them out.
func TestWire(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	limit := api.Limit{
		Policy: "p", Name: "rpm", Unit: "requests", Amount: 10, Most: 8, RetryAfterMS: 1500, ResetAt: at,
		Refused: true,
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{api.TakeRequest{Take: api.Take{
			Bucket: api.Bucket{Policy: "p", Key: "k", Costs: map[string]int64{"tokens": 5}}, Priority: 3, WaitMS: 1,
			HoldMS: 2, ID: "i", Grant: "00000000000000a1", Labels: map[string]string{"task": "embed"},
		}}, `{"policy":"p","key":"k","costs":{"tokens":5},"priority":3,"wait_ms":1,"hold_ms":2,"id":"i","grant":"00000000000000a1","labels":{"task":"embed"}}`},
		{
			api.TakeRequest{Takes: []api.Take{{Buckets: []api.Bucket{{Policy: "p"}}}}},
			`{"takes":[{"buckets":[{"policy":"p"}]}]}`,
		},
		{
			api.TakeAnswer{Answer: &api.Answer{
				Reason: api.ReasonLimited, Message: "no", RefusedBy: &api.LimitName{Policy: "p", Limit: "rpm"},
				RetryAfterMS: 1500, ResetAt: &at, Limits: []api.Limit{limit},
			}},
			`{"allowed":false,"reason":"limited","message":"no","refused_by":{"policy":"p","limit":"rpm"},"retry_after_ms":1500,"reset_at":"2026-01-02T03:04:05Z","remaining":0,` +
				`"limits":[{"bucket":0,"policy":"p","name":"rpm","unit":"requests","amount":10,"most":8,"remaining":0,"retry_after_ms":1500,"reset_at":"2026-01-02T03:04:05Z","refused":true}]}`,
		},
		{
			api.TakeAnswer{Answers: []api.Answer{{
				Allowed: true, Remaining: 9, Reservation: "t",
				Grant: "00000000000000a1", HoldEnd: &at, Replayed: true,
			}}},
			`{"answers":[{"allowed":true,"retry_after_ms":0,"remaining":9,"reservation":"t","grant":"00000000000000a1","hold_end":"2026-01-02T03:04:05Z","replayed":true}]}`,
		},
		{
			api.TakeAnswer{Answer: &api.Answer{NeverFits: true, RetryAfterMS: api.Never}},
			`{"allowed":false,"retry_after_ms":null,"remaining":0,"never_fits":true}`,
		},
		{
			api.SettleRequest{Reservation: "t", Used: map[string]int64{"tokens": 7}},
			`{"reservation":"t","used":{"tokens":7}}`,
		},
		{api.SettleRequest{Reservation: "t", Cancel: true}, `{"reservation":"t","cancel":true}`},
		{
			api.SettleAnswer{Outcome: api.OutcomeRenewed, Reservation: "u", HoldEnd: &at},
			`{"outcome":"renewed","reservation":"u","hold_end":"2026-01-02T03:04:05Z"}`,
		},
		{
			api.Problem{Type: "about:blank", Title: "T", Status: 422, Code: api.CodeNeverFits, Detail: "d"},
			`{"type":"about:blank","title":"T","status":422,"code":"never_fits","detail":"d"}`,
		},
	} {
		got, err := json.Marshal(c.v)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%T: (-want +got)\n%s", c.v, diff)
		}
	}
}

// A cost that is no number must not count as 0.
func TestCosts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":1,"b":9223372036854775807,"c":-2}`: "",
		`{}`:                                     "",
		`null`:                                   "",
		`{"a":null}`:                             "null",
		`{"a":"1"}`:                              "string",
		`{"a":true}`:                             "bool",
		`{"a":[1]}`:                              "array",
		`{"a":{}}`:                               "object",
		`{"a":1.5}`:                              "number 1.5",
		`{"a":1e3}`:                              "number 1e3",
		`{"a":9223372036854775808}`:              "number 9223372036854775808",
		`[1]`:                                    "array",
		`3`:                                      "number 3",
		`{"a":1,"a":1}`:                          `"a" is used twice`,
	} {
		var c api.Costs
		err := json.Unmarshal([]byte(text), &c)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	var c api.Costs
	if err := json.Unmarshal([]byte(`{"a":1,"b":9223372036854775807,"c":-2}`), &c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Costs{"a": 1, "b": 9223372036854775807, "c": -2}, c); diff != "" {
		t.Error(diff)
	}
}

func TestMillis(t *testing.T) {
	t.Parallel()
	for _, m := range []api.Millis{0, 1500, api.Never} {
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var got api.Millis
		if err := json.Unmarshal(data, &got); err != nil || got != m {
			t.Errorf("%s = %d, %v, want %d", data, got, err, m)
		}
	}
	if api.Never.Duration() <= 0 || api.Never.Duration() < 200*365*24*time.Hour {
		t.Errorf("never is %v", api.Never.Duration())
	}
}
