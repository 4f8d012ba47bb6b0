package engine

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/drawgate/drawgate/engine/rules"
)

// compareRules returns which rules differ, and which moved.
func compareRules(before, after []rules.Rule) (list []Change) {
	pair := pairRules(before, after)
	from := make([]int, len(after)) // previous position of each; -1: none
	for i := range from {
		from[i] = -1
	}
	for i, k := range pair {
		if k < 0 {
			list = append(list, Change{What: RuleRemoved, Rule: nameOrPlace(before, i), Before: says(&before[i])})
			continue
		}
		from[k] = i
		list = append(list, compareRule(nameOrPlace(after, k), &before[i], &after[k])...)
	}
	stay := inOrder(from)
	for k, i := range from {
		switch {
		case i < 0:
			list = append(list, Change{
				What: RuleAdded, Rule: nameOrPlace(after, k), After: says(&after[k]),
				Unused: len(after[k].Apply) > 0,
			})
		case !stay[k]:
			list = append(list, Change{
				What: RuleMoved, Rule: nameOrPlace(after, k), Field: "position",
				Before: fmt.Sprint(i + 1), After: fmt.Sprint(k + 1),
			})
		}
	}
	return list
}

// pairRules returns the new position of each rule; -1 if it is gone. Rules with a name are matched
// by it, others by their content or else by their position.
func pairRules(before, after []rules.Rule) []int {
	places := map[string][]int{} // by name, or by content
	for k := range after {
		id := ruleID(&after[k])
		places[id] = append(places[id], k)
	}
	pair, used := make([]int, len(before)), make([]bool, len(after))
	for i := range before {
		pair[i] = -1
		if id := ruleID(&before[i]); len(places[id]) > 0 {
			k := places[id][0]
			places[id] = places[id][1:]
			pair[i], used[k] = k, true
		}
	}
	for i := range before {
		if pair[i] < 0 && before[i].Name == "" && i < len(after) && !used[i] && after[i].Name == "" {
			pair[i], used[i] = i, true
		}
	}
	return pair
}

func ruleID(r *rules.Rule) string {
	if r.Name != "" {
		return "name " + r.Name
	}
	return "says " + says(r)
}

// inOrder marks a longest increasing subsequence. Negative members are ignored.
func inOrder(from []int) []bool {
	var ends []int // for the best sequence of each length, its last position
	before := make([]int, len(from))
	for k, v := range from {
		if v < 0 {
			continue
		}
		n := sort.Search(len(ends), func(n int) bool { return from[ends[n]] > v })
		before[k] = -1
		if n > 0 {
			before[k] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, k)
		} else {
			ends[n] = k
		}
	}
	stay := make([]bool, len(from))
	if len(ends) > 0 {
		for k := ends[len(ends)-1]; k >= 0; k = before[k] {
			stay[k] = true
		}
	}
	return stay
}

func compareRule(name string, r, q *rules.Rule) (list []Change) {
	differ := func(field string, a, b any, unused bool) {
		if a, b := written(a), written(b); a != b {
			list = append(list, Change{
				What: RuleChanged, Rule: name, Field: field, Before: a, After: b,
				Unused: unused,
			})
		}
	}
	differ("match", r.Match, q.Match, false)
	differ("when", r.When, q.When, false)
	differ("schedule", r.Schedule, q.Schedule, false)
	differ("tenant", r.Tenant, q.Tenant, true)
	differ("exempt", r.Exempt, q.Exempt, false)
	differ("final", r.Final, q.Final, false)
	differ("shadow", r.Shadow, q.Shadow, false)
	differ("apply", r.Apply, q.Apply, otherBuckets(r, q))
	return list
}

// otherBuckets reports whether a rule now uses a policy and key that it did not use before.
func otherBuckets(r, q *rules.Rule) bool {
	return slices.ContainsFunc(q.Apply, func(a rules.Apply) bool {
		return !slices.ContainsFunc(r.Apply, func(b rules.Apply) bool {
			return a.Policy == b.Policy && a.Key == b.Key && (a.Shadow || q.Shadow) == (b.Shadow || r.Shadow)
		})
	})
}

// nameOrPlace returns how a change refers to a rule.
func nameOrPlace(list []rules.Rule, i int) string {
	return cmp.Or(list[i].Name, fmt.Sprintf("#%d", i+1))
}
