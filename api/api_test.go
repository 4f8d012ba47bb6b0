package api_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/api"
)

// The names on the wire are a promise: other languages spell them out.
func TestWire(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	limit := api.Limit{Policy: "p", Name: "rpm", Unit: "requests", Amount: 10, RetryAfterMS: 1500, ResetAt: at, Refused: true}
	for _, c := range []struct {
		v    any
		want string
	}{
		{api.TakeRequest{Take: api.Take{
			Bucket: api.Bucket{Policy: "p", Key: "k", Costs: map[string]int64{"tokens": 5}}, Priority: 3, WaitMS: 1, HoldMS: 2, ID: "i", Labels: map[string]string{"task": "embed"},
		}}, `{"policy":"p","key":"k","costs":{"tokens":5},"priority":3,"wait_ms":1,"hold_ms":2,"id":"i","labels":{"task":"embed"}}`},
		{api.TakeRequest{Takes: []api.Take{{Buckets: []api.Bucket{{Policy: "p"}}}}}, `{"takes":[{"buckets":[{"policy":"p"}]}]}`},
		{
			api.TakeAnswer{Answer: &api.Answer{
				Reason: api.ReasonLimited, Message: "no", RefusedBy: &api.LimitName{Policy: "p", Limit: "rpm"}, RetryAfterMS: 1500, ResetAt: &at, Limits: []api.Limit{limit},
			}},
			`{"allowed":false,"reason":"limited","message":"no","refused_by":{"policy":"p","limit":"rpm"},"retry_after_ms":1500,"reset_at":"2026-01-02T03:04:05Z","remaining":0,` +
				`"limits":[{"bucket":0,"policy":"p","name":"rpm","unit":"requests","amount":10,"remaining":0,"retry_after_ms":1500,"reset_at":"2026-01-02T03:04:05Z","refused":true}]}`,
		},
		{
			api.TakeAnswer{Answers: []api.Answer{{Allowed: true, Remaining: 9, Reservation: "t", HoldEnd: &at, Replayed: true}}},
			`{"answers":[{"allowed":true,"retry_after_ms":0,"remaining":9,"reservation":"t","hold_end":"2026-01-02T03:04:05Z","replayed":true}]}`,
		},
		{api.SettleRequest{Reservation: "t", Used: map[string]int64{"tokens": 7}}, `{"reservation":"t","used":{"tokens":7}}`},
		{api.SettleRequest{Reservation: "t", Cancel: true}, `{"reservation":"t","cancel":true}`},
		{api.SettleAnswer{Outcome: api.OutcomeRenewed, Reservation: "u", HoldEnd: &at}, `{"outcome":"renewed","reservation":"u","hold_end":"2026-01-02T03:04:05Z"}`},
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
