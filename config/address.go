package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// network reads an address or a network in CIDR form.
func (d *decoder) network(e entry) (p netip.Prefix) {
	text, ok := d.text(e)
	if !ok {
		return p
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		d.problem(spanOf(e.value), "such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32",
			"%s: %s is neither an address nor a network", e.key, shorten(text))
		return netip.Prefix{}
	}
	if p != p.Masked() {
		d.warn(spanOf(e.value), "", "%s: %s is the network %s", e.key, text, p.Masked())
	}
	return p.Masked()
}

// address reads host:port. The host may be empty, for all addresses of the machine; the port may be
// 0, for a free one.
func (d *decoder) address(e entry) string {
	if n, ok := e.value.(*ast.IntegerNode); ok {
		port := n.GetToken().Value
		d.problem(spanOf(n), fmt.Sprintf(`write "127.0.0.1:%s", or ":%[1]s" for all addresses of the machine`, port),
			"%s %s is not host:port", e.key, shorten(port))
		return ""
	}
	text, ok := d.text(e)
	if !ok {
		return ""
	}
	if hint, err := checkAddress(text); err != nil {
		d.problem(spanOf(e.value), hint, "%s %s", e.key, err)
		return ""
	}
	return text
}

func checkAddress(text string) (hint string, err error) {
	if text == ListenOff {
		return "", nil
	}
	const example = "such as 127.0.0.1:7878, or off"
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return example, fmt.Errorf("%s is not host:port", shorten(text))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return example, fmt.Errorf("%s has no port from 0 to 65535", shorten(text))
	}
	if strings.ContainsAny(host, "/ @") {
		return example, fmt.Errorf("%s is not host:port", shorten(text))
	}
	return "", nil
}

// link reads an absolute http or https URL.
func (d *decoder) link(e entry) string {
	text, ok := d.text(e)
	if !ok {
		return ""
	}
	if !isLink(text) {
		d.problem(spanOf(e.value), "such as https://hooks.example.com/limits", "%s is not an http or https URL", e.key)
		return ""
	}
	return text
}

func isLink(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Fragment == ""
}
