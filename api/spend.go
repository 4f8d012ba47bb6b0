package api

// SpendAnswer says what calls of the gateway spent on some days.
type SpendAnswer struct {
	From     string     `json:"from"` // the first day, such as 2026-11-01
	To       string     `json:"to"`   // the last day
	Zone     string     `json:"zone"` // of the days: a name of the IANA time zone database
	Currency string     `json:"currency,omitempty"`
	Rows     []SpendRow `json:"rows"` // ordered by the fields that say whose it is
}

// SpendRow is what was spent together: of the fields that say whose it is, those that were not
// asked for are empty.
type SpendRow struct {
	Day      string `json:"day,omitempty"` // on which the calls began
	Team     string `json:"team,omitempty"`
	Key      string `json:"key,omitempty"` // name of the virtual key
	Upstream string `json:"upstream,omitempty"`
	Model    string `json:"model,omitempty"`
	// by calls that have ended, and by those whose process died: the most that they can have used
	Used SpendUnits `json:"used"`
	Open SpendUnits `json:"open"` // the most that calls which are under way can use
}

// SpendUnits are what calls used.
type SpendUnits struct {
	Requests     int64 `json:"requests"`
	PromptTokens int64 `json:"prompt_tokens"` // caches included
	AnswerTokens int64 `json:"answer_tokens"` // reasoning included
	CostMicros   int64 `json:"cost_micros"`   // millionths of the currency
}
