package gateway

import (
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/llm"
)

// plainPath returns a path decoded. It refuses one that different programs read as different paths:
// the provider might do something else than what is counted here.
func plainPath(escaped string) (string, *refusal) {
	bad := func(message string) (string, *refusal) {
		return "", &refusal{kind: llm.BadRequest, message: message}
	}
	if err := rules.CheckRequestPath(escaped); err != nil && !strings.HasPrefix(escaped, "//") {
		return bad(err.Error())
	}
	plain, err := url.PathUnescape(escaped)
	switch {
	case err != nil:
		return bad("the path is not valid")
	case strings.Count(plain, "/") != strings.Count(escaped, "/"):
		return bad("the path has an encoded slash: programs do not agree on whether it ends a segment")
	case strings.Contains(plain, "//") || strings.HasSuffix(plain, "/"):
		return bad("the path has an empty segment: look at the slash at the end of the base URL")
	case !llm.PlainPath(plain):
		return bad("the path has a character other than letters, digits and -._~:@+=,/")
	case strings.Contains(plain+"/", "/./"):
		return bad("the path has the segment \".\": send it resolved")
	}
	return plain, nil
}

// oneBody refuses headers of a request that say more than one thing about its body, or what is not
// understood here: the provider might read another body than the one that is counted.
func oneBody(h http.Header) *refusal {
	bad := func(message string) *refusal { return &refusal{kind: llm.BadRequest, message: message} }
	for _, v := range h["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return bad("the body is compressed and cannot be counted: send it as it is, without Content-Encoding")
		}
	}
	switch types := h["Content-Type"]; {
	case len(types) > 1:
		return bad("the request has more than one Content-Type")
	case len(types) == 1 && types[0] != "":
		_, params, err := mime.ParseMediaType(types[0])
		charset := strings.ToLower(params["charset"])
		if err != nil || charset != "" && charset != "utf-8" && charset != "us-ascii" {
			return bad("the Content-Type is not valid, or its charset is not UTF-8")
		}
	}
	return nil
}
