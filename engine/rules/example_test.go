package rules_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/drawgate/drawgate/engine/rules"
)

// Special rules come first: what an earlier rule applied, a later one does not apply again.
func Example() {
	set, err := rules.Compile([]rules.Rule{
		{Match: rules.Match{Path: "/health/*"}, Exempt: true},
		{Match: rules.Match{Path: "/v1/{project}/upload"}, Apply: []rules.Apply{{
			Policy: "api", Key: "user",
			Amounts: map[string]int64{"rpm": 5},
		}}},
		{Apply: []rules.Apply{{Policy: "per-ip", Key: "ip"}, {Policy: "api", Key: "user"}}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var m rules.Matches
	for _, path := range []string{"/health/live", "/v1/blue/upload", "/v1/blue"} {
		if err := set.Match(&rules.Attributes{Path: path, User: "ann", IP: netip.MustParseAddr("2001:db8:1:2::9")},
			time.Now(), &m); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(path, "exempt:", m.Exempt)
		for _, a := range m.Applied {
			fmt.Println("  ", a.Apply.Policy, a.Key, a.Apply.Amounts)
		}
	}
	// Output:
	// /health/live exempt: true
	// /v1/blue/upload exempt: false
	//    api ann map[rpm:5]
	//    per-ip 2001:db8:1:2::/64 map[]
	// /v1/blue exempt: false
	//    per-ip 2001:db8:1:2::/64 map[]
	//    api ann map[]
}

func ExampleHash() {
	fmt.Println(rules.Hash("foo")) // printf %s foo | sha256sum
	// Output: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
}

func ExampleJoin() {
	fmt.Println(rules.Join("ann", "/v1/items"), rules.Join("ann|", "v1/items"))
	// Output: ann|/v1/items ann%7C|v1/items
}
