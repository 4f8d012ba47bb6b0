package config

import (
	"strings"
	"unicode/utf8"

	"github.com/drawgate/drawgate/internal/pattern"
)

// redacted replaces a secret.
const redacted = "xxxxx"

// secrets finds the secrets in a URL: the password (or, without one, the user), and query values
// whose names suggest a secret. It does not parse the URL, because an invalid URL may contain a
// secret too. So the slashes may be missing, and the last '@' before white space ends the password.
var secrets = pattern.New(`[A-Za-z][A-Za-z0-9+.-]*:/*(?:[^\s/:@?]*:)?([^\s"'/][^\s"']*)@|` +
	`(?i)(?:^|[?&\s"'])[^=&\s"'?]*(?:pass?w|pass|secret|token|key|auth|credential)[^=&\s"'?]*=['"]?([^&\s"']+)`)

// RedactURL returns a store URL in which passwords and other secrets are replaced. The text need
// not be a valid URL.
func RedactURL(url string) string {
	if _, ok := SQLitePath(url); ok {
		return url // a path may have any character
	}
	text, _ := redactLine(url, span{})
	return text
}

// redactLine redacts a line and adjusts a position in it.
func redactLine(line string, at span) (string, span) {
	var b strings.Builder
	end, column := 0, at.Column
	for _, m := range secrets().FindAllStringSubmatchIndex(line, -1) {
		from, to := m[2], m[3]
		if from < 0 {
			from, to = m[4], m[5]
		}
		b.WriteString(line[end:from] + redacted)
		end = to
		first, last := utf8.RuneCountInString(line[:from])+1, utf8.RuneCountInString(line[:to])
		longer := len(redacted) - (last - first + 1)
		switch {
		case column > last:
			at.Column += longer
		case column >= first: // inside the secret
			at.Column += first - column
			at.Width = len(redacted)
		case column+at.Width > last:
			at.Width += longer
		}
	}
	b.WriteString(line[end:])
	return b.String(), at
}
