package present

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Visible returns arguments in which keys and names cannot control a terminal: characters that are
// not printable are escaped as in %q. The line breaks of an error stay.
func Visible(args []any) []any {
	out := slices.Clone(args)
	for i, v := range args {
		switch v := v.(type) {
		case string:
			out[i] = Escape(v, "")
		case error:
			out[i] = Escape(v.Error(), "\n\t")
		}
	}
	return out
}

// Escape escapes all characters that are neither printable nor in keep.
func Escape(s, keep string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// Printf prints arguments as [Visible] returns them. It ignores errors, because nothing can be done
// if the output is closed.
func Printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, Visible(args)...) }
