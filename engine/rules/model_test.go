package rules

import (
	"errors"
	"net/netip"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/expr-lang/expr/vm"
)

// model is the obvious way to match: rule by rule, condition by condition, every expression by the
// language's own machine. It shares no index with [Set], and no short cut.
type model struct{ list []Rule }

// match returns what a Set should.
func (m model) match(a *Attributes, now time.Time) (applied []Applied, exempt, matched, failed bool) {
	shadowsOver, index := false, 0
	enforced, shadow := map[string]bool{}, map[string]bool{}
	for i := range m.list {
		r, first := &m.list[i], index
		index += len(r.Apply)
		if shadowsOver && r.Shadow || !modelMatches(&r.Match, a) || r.Schedule != nil && !modelHours(r.Schedule, now) {
			continue
		}
		if r.When != "" {
			v, err := modelValue(r.When, reflect.Bool, a, now)
			if err != nil {
				return nil, false, false, true
			}
			if v == false {
				continue
			}
		}
		tenant := a.Tenant
		if r.Tenant != "" {
			v, err := modelValue(r.Tenant, reflect.String, a, now)
			if err != nil {
				return nil, false, false, true
			}
			if v != "" {
				tenant = v.(string)
			}
		}
		var fresh []*Apply
		for k := range r.Apply {
			p := &r.Apply[k]
			isShadow := r.Shadow || p.Shadow
			if isShadow && (shadowsOver || shadow[p.Policy]) || !isShadow && enforced[p.Policy] {
				continue
			}
			key, err := modelValue(p.Key, reflect.String, a, now)
			if err != nil {
				return nil, false, false, true
			}
			applied = append(applied, Applied{
				Rule: i, Index: first + k, Apply: p, Tenant: tenant, Key: key.(string),
				Shadow: isShadow,
			})
			fresh = append(fresh, p)
		}
		for _, p := range fresh {
			if r.Shadow || p.Shadow {
				shadow[p.Policy] = true
			} else {
				enforced[p.Policy] = true
			}
		}
		matched = matched || !r.Shadow
		if r.Exempt {
			return applied, true, matched, false
		}
		if r.Final && !r.Shadow {
			return applied, false, matched, false
		}
		shadowsOver = shadowsOver || r.Final
	}
	return applied, false, matched, false
}

func modelMatches(m *Match, a *Attributes) bool {
	if len(m.Methods) > 0 {
		ok := false
		for _, x := range m.Methods {
			ok = ok || strings.EqualFold(x, a.Method)
		}
		if !ok {
			return false
		}
	}
	if len(m.IPs) > 0 {
		ok := false
		for _, p := range m.IPs {
			ip := a.IP.WithZone("").Unmap()
			ok = ok || p.Contains(ip) || ip.Is4() && p.Addr().Is4In6() && p.Contains(netip.AddrFrom16(ip.As16()))
		}
		if !ok {
			return false
		}
	}
	for k, v := range m.Headers {
		if !modelHolds(v, a.Headers.Get(k)) {
			return false
		}
	}
	for k, v := range m.Attrs {
		if !modelHolds(v, a.Extra[k]) {
			return false
		}
	}
	host := modelHost(a.Host)
	hostHolds := modelHolds(strings.ToLower(m.Host), host)
	if end, ok := strings.CutPrefix(m.Host, "*"); ok && end != "" {
		hostHolds = host != "" && strings.HasSuffix(host, strings.ToLower(end))
	}
	return hostHolds && modelHolds(m.Route, a.Route) && modelHolds(m.User, a.User) && modelHolds(m.Class, a.Class) &&
		modelPath(m.Path, modelClean(a.Path))
}

func modelHolds(cond, v string) bool {
	if cond == "" {
		return true
	}
	if before, ok := strings.CutSuffix(cond, "*"); ok {
		return v != "" && strings.HasPrefix(v, before)
	}
	return cond == v
}

func modelHost(h string) string {
	return strings.ToLower(cleanHost(h)) // tested by itself
}

func modelClean(p string) string {
	if !strings.HasPrefix(p, "/") {
		return p
	}
	c := path.Clean(p)
	for _, end := range []string{"/", "/.", "/.."} {
		if strings.HasSuffix(p, end) && c != "/" {
			return c + "/"
		}
	}
	return c
}

func modelPath(pattern, p string) bool {
	if pattern == "" {
		return true
	}
	if p == "" {
		return false
	}
	want, got := strings.Split(pattern, "/"), strings.Split(p, "/")
	for i, w := range want {
		last := i == len(want)-1
		if last && strings.HasSuffix(w, "*") {
			return len(got) > i && strings.HasPrefix(strings.Join(got[i:], "/"), w[:len(w)-1])
		}
		if i >= len(got) || strings.HasPrefix(w, "{") && got[i] == "" || !strings.HasPrefix(w, "{") && w != got[i] {
			return false
		}
	}
	return len(want) == len(got)
}

// modelHours looks at the days one by one.
func modelHours(s *Schedule, now time.Time) bool {
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		return false
	}
	local := now.In(zone)
	clock := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
	on := func(d time.Weekday) bool {
		ok := len(s.Days) == 0
		for _, x := range s.Days {
			ok = ok || x == d
		}
		return ok
	}
	to := s.To
	if to == 0 {
		to = day
	}
	if s.From < to {
		return on(local.Weekday()) && s.From <= clock && clock < to
	}
	return on(local.Weekday()) && clock >= s.From || on((local.Weekday()+6)%7) && clock < to
}

// modelCodes remembers what was compiled: a fuzz test has few expressions and many runs.
var modelCodes sync.Map

// modelValue runs an expression on the machine.
func modelValue(source string, kind reflect.Kind, a *Attributes, now time.Time) (any, error) {
	type id struct {
		source string
		kind   reflect.Kind
	}
	code, ok := modelCodes.Load(id{source, kind})
	if !ok {
		made, _, err := compileExpr(source, kind, false)
		if err != nil {
			return nil, err
		}
		code, _ = modelCodes.LoadOrStore(id{source, kind}, made)
	}
	m := &Matches{}
	m.request.set(a, now, newTexts())
	m.fill()
	machine := vm.VM{MemoryBudget: memoryBudget}
	v, err := machine.Run(code.(*vm.Program), &m.env)
	if err == nil && (v == nil || reflect.TypeOf(v).Kind() != kind) {
		err = errors.New("a value of another kind")
	}
	return v, err
}
