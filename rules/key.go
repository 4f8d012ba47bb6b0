package rules

import "strings"

// Join makes one key of several parts, such that different parts never make the same key: "%" and "|" within a part are escaped.
func Join(parts ...string) string {
	var b []byte
	for i, p := range parts {
		b = appendPart(b, i, p)
	}
	return string(b)
}

// appendPart appends part i to a joined key.
func appendPart(b []byte, i int, part string) []byte {
	if i > 0 {
		b = append(b, '|')
	}
	for {
		at := strings.IndexAny(part, "%|")
		if at < 0 {
			return append(b, part...)
		}
		b = append(b, part[:at]...)
		if part[at] == '%' {
			b = append(b, "%25"...)
		} else {
			b = append(b, "%7C"...)
		}
		part = part[at+1:]
	}
}
