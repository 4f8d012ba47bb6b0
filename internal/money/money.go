// Package money writes amounts of limits for people: money, which is counted in millionths, in its
// currency.
package money

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	suffix  = "_micros" // of the unit of money, behind the currency
	million = 1_000_000
)

// Currency returns the currency of a unit, such as usd of usd_micros. ok is false if it is no unit
// of money.
func Currency(unit string) (currency string, ok bool) {
	currency, ok = strings.CutSuffix(unit, suffix)
	if !ok || currency == "" {
		return "", false
	}
	return currency, true
}

// Text writes an amount exactly, with its unit: "0.25 usd", "10 requests".
func Text(n int64, unit string) string {
	currency, ok := Currency(unit)
	if !ok {
		return fmt.Sprintf("%d %s", n, unit)
	}
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	text := strconv.FormatInt(n/million, 10)
	if n%million != 0 {
		text += strings.TrimRight(fmt.Sprintf(".%06d", n%million), "0")
	}
	return sign + text + " " + currency
}
