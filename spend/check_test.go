package spend_test

import (
	"testing"

	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/spend"
)

// TestCompareWithDoubt: a meter may have of a doubtful call what it used or what it reserved,
// nothing if the store had not heard of it either, and both if it may count twice. More is not
// explained.
func TestCompareWithDoubt(t *testing.T) {
	t.Parallel()
	who := audit.Spender{Day: "2026-11-30", Team: "t", Key: "k", Upstream: "u", Model: "m"}
	amounts := func(answer int64) []audit.Amount {
		return []audit.Amount{
			{Unit: "requests", N: 1},
			{Unit: "prompt_tokens", N: 10},
			{Unit: "answer_tokens", N: answer},
		}
	}
	const used, reserved = 30, 50
	for _, c := range []struct {
		name             string
		uncertain, twice bool
		doubts           []int64 // answer tokens that are explained by the call, in addition to its own
	}{
		{"ended just before a kill", false, false, []int64{reserved}},
		{"of an outage", true, false, []int64{reserved, 0}},
		{"perhaps granted twice", true, true, []int64{reserved, 0, used + reserved}},
	} {
		s := &audit.Spent{
			Ended: map[audit.Spender]map[string]int64{who: {"requests": 1, "prompt_tokens": 10, "answer_tokens": used}},
			Doubtful: []audit.Doubtful{{
				Unended: audit.Unended{
					Spender: who, Reserved: amounts(reserved), Uncertain: c.uncertain,
					Twice: c.twice,
				},
				Used: amounts(used),
			}},
		}
		compare := func(answer int64) (differs, doubtful bool) {
			u := spend.Units{AnswerTokens: answer}
			if answer > 0 {
				u.Requests, u.PromptTokens = 1, 10
			}
			if answer > reserved {
				u.Requests, u.PromptTokens = 2, 20
			}
			list, doubts := spend.Compare([]spend.Row{{Meter: spend.Meter(who), Used: u}}, s, "usd_micros")
			return len(list) > 0, doubts[spend.Meter(who)]
		}
		if differs, doubtful := compare(used); differs || doubtful {
			t.Errorf("%s, what it used: differs %v, doubtful %v", c.name, differs, doubtful)
		}
		for _, n := range c.doubts {
			if differs, doubtful := compare(n); differs || !doubtful {
				t.Errorf("%s, %d tokens: differs %v, doubtful %v", c.name, n, differs, doubtful)
			}
		}
		for _, n := range []int64{used + reserved + 1, 2 * (used + reserved)} {
			if differs, doubtful := compare(n); !differs || !doubtful {
				t.Errorf("%s, %d tokens: differs %v, doubtful %v", c.name, n, differs, doubtful)
			}
		}
		if differs, _ := compare(0); differs == c.uncertain {
			t.Errorf("%s, nothing: differs %v", c.name, differs)
		}
	}
}
