package present

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/spend"
)

// SpendQuery says what of the meters is wanted.
type SpendQuery struct {
	First, Last                time.Time // days
	By                         []string  // names of SpendFields; none: one row in all
	Team, Key, Upstream, Model *string   // only those; nil: all
}

// SpendFields are the names by which what was spent can be told apart.
var SpendFields = []string{"day", "team", "key", "upstream", "model"}

// SpendDay reads a day, such as 2026-11-28.
func SpendDay(text string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, fmt.Errorf("%.40q is not a day such as 2026-11-28", text)
	}
	return t, nil
}

// ThisMonth returns the first day of a month, and the day of now.
func ThisMonth(now time.Time) (first, last time.Time) {
	last = time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	return last.AddDate(0, 0, 1-last.Day()), last
}

// maxSpendDays is how many days one query covers.
const maxSpendDays = 400

// Check returns what is wrong with a query.
func (q *SpendQuery) Check() error {
	if q.Last.Before(q.First) {
		return fmt.Errorf("the last day, %s, is before the first one, %s: the last one is today unless you name it", q.Last.Format(time.DateOnly),
			q.First.Format(time.DateOnly))
	}
	if q.First.Year() < 1970 || q.Last.Year() > 9000 {
		return errors.New("name days between 1970 and 9000")
	}
	if q.Last.Sub(q.First) >= maxSpendDays*24*time.Hour {
		return fmt.Errorf("more than %d days: ask for fewer", maxSpendDays)
	}
	for _, name := range q.By {
		if !slices.Contains(SpendFields, name) {
			return fmt.Errorf("%.40q is not one of %s", name, strings.Join(SpendFields, ", "))
		}
	}
	return nil
}

// Spend chooses from what meters counted.
func Spend(rows []spend.Row, q *SpendQuery, zone *time.Location, money string) api.SpendAnswer {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r spend.Row) bool {
		for _, f := range [...]struct {
			want *string
			is   string
		}{{q.Team, r.Team}, {q.Key, r.Key}, {q.Upstream, r.Upstream}, {q.Model, r.Model}} {
			if f.want != nil && *f.want != f.is {
				return true
			}
		}
		return false
	})
	a := api.SpendAnswer{
		From: q.First.Format(time.DateOnly), To: q.Last.Format(time.DateOnly), Zone: zone.String(),
		Currency: strings.TrimSuffix(money, "_micros"), Rows: []api.SpendRow{},
	}
	for _, r := range spend.Sum(rows, q.reduce) {
		a.Rows = append(a.Rows, api.SpendRow{
			Day: r.Day, Team: r.Team, Key: r.Key, Upstream: r.Upstream, Model: r.Model,
			Used: SpendUnits(&r.Used), Open: SpendUnits(&r.Open),
		})
	}
	return a
}

// reduce empties the fields of a meter that are not told apart.
func (q *SpendQuery) reduce(m *spend.Meter) {
	for i, field := range [...]*string{&m.Day, &m.Team, &m.Key, &m.Upstream, &m.Model} {
		if !slices.Contains(q.By, SpendFields[i]) {
			*field = ""
		}
	}
}

// SpendUnits writes units.
func SpendUnits(u *spend.Units) api.SpendUnits {
	return api.SpendUnits{
		Requests: u.Requests, PromptTokens: u.PromptTokens, AnswerTokens: u.AnswerTokens,
		CostMicros: u.Micros,
	}
}

// Micros writes millionths with as many decimals as are needed, at least two.
func Micros(n int64) string {
	text := fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)
	for strings.HasSuffix(text, "0") && !strings.HasSuffix(text[:len(text)-2], ".") {
		text = text[:len(text)-1]
	}
	return text
}
