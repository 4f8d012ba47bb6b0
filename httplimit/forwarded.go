package httplimit

import "strings"

// lastComma returns the position of the last comma of a Forwarded header that is not quoted, or -1
// if there is none.
//
// It reads from the right, because only there trusted proxies wrote: an unclosed quote from a
// client on the left must not swallow what they appended. Source: RFC 7239, section 4; RFC 9110,
// sections 5.6.1 and 5.6.4.
func lastComma(line string) int {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case '"':
			if !quoted || !escaped(line, i) {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// escaped reports whether the character at i follows an odd number of backslashes.
func escaped(line string, i int) bool {
	n := 0
	for i--; i >= 0 && line[i] == '\\' && n < maxNode; i-- {
		n++
	}
	return n%2 == 1
}

// between has the characters between the parameters of an element; empty parameters mean nothing.
const between = "; \t"

// forwardedFor returns the value of the parameter "for" of one element of a Forwarded header. It is
// false if there is not exactly one, or the element is malformed. "unknown" and hidden names (_x)
// are returned like any other value, though they are not addresses.
func forwardedFor(element string) (value string, ok bool) {
	for rest := strings.TrimLeft(element, between); rest != ""; rest = strings.TrimLeft(rest, between) {
		name, v, more, valid := parameter(rest)
		if !valid {
			return "", false
		}
		if strings.EqualFold(name, "for") {
			if ok {
				return "", false
			}
			value, ok = v, true
		}
		rest = more
	}
	return value, ok
}

// parameter parses name=value, or name="value", up to the next semicolon.
func parameter(text string) (name, value, rest string, ok bool) {
	name, text, ok = strings.Cut(text, "=")
	name = strings.Trim(name, " \t")
	if !ok || name == "" || strings.ContainsAny(name, "\";, \t") {
		return "", "", "", false
	}
	if !strings.HasPrefix(text, `"`) {
		value, rest, _ = strings.Cut(text, ";")
		return name, strings.TrimRight(value, " \t"), rest, !strings.ContainsAny(value, `"\`)
	}
	value, text, ok = unquote(text)
	if !ok {
		return "", "", "", false
	}
	if text = strings.TrimLeft(text, " \t"); text != "" && text[0] != ';' {
		return "", "", "", false
	}
	return name, value, strings.TrimPrefix(text, ";"), true
}

// unquote parses a quoted string at the start of text.
func unquote(text string) (value, rest string, ok bool) {
	var unescaped []byte // nil as long as nothing was escaped
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && unescaped == nil:
			return text[1:i], text[i+1:], true
		case c == '"':
			return string(unescaped), text[i+1:], true
		case c == '\\' && i+1 < len(text):
			if unescaped == nil {
				unescaped = append(make([]byte, 0, i+16), text[1:i]...)
			}
			i++
			unescaped = append(unescaped, text[i])
		case unescaped != nil:
			unescaped = append(unescaped, c)
		}
	}
	return "", "", false
}
