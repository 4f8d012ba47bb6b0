package main

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/api"
)

// TestSpendWithoutPricesHasNoCost: where nothing counts money, no cell says that calls cost
// nothing.
func TestSpendWithoutPricesHasNoCost(t *testing.T) {
	t.Parallel()
	s := &api.SpendAnswer{Rows: []api.SpendRow{{
		Key: "alice", Used: api.SpendUnits{Requests: 3, PromptTokens: 27, AnswerTokens: 9},
	}}}
	var out strings.Builder
	writeSpendCSV(&out, s)
	if !strings.HasSuffix(out.String(), "\n,,alice,,,3,27,9,,,0,\n") {
		t.Errorf("got %s", out.String())
	}
	out.Reset()
	s.Currency = "USD"
	writeSpendCSV(&out, s)
	if !strings.HasSuffix(out.String(), "\n,,alice,,,3,27,9,0.00,USD,0,0.00\n") {
		t.Errorf("with prices: got %s", out.String())
	}
}
