package config_test

import (
	"fmt"

	"github.com/drawgate/drawgate/config"
)

func ExampleParse() {
	c, problems := config.Parse("drawgate.yaml", []byte(`
policies:
  api:
    limits:
      - {name: rpm, rolling: 1m, amount: 100, headroom: 10%}
      - {name: rpd, calendar: day, zone: Europe/Paris, amount: 5_000}
`))
	if len(problems) > 0 {
		fmt.Println(config.Problems(problems))
		return
	}
	for _, o := range c.Explain() {
		fmt.Println(o.Setting, "is", o.Value)
	}
	// Output:
	// store is memory:
	// policies.api.limits.rpm is {name: rpm, rolling: 1m, amount: 100, headroom: 10%}
	// policies.api.limits.rpd is {name: rpd, calendar: day, amount: 5000, zone: Europe/Paris}
}

func ExampleProblems() {
	_, problems := config.Parse("drawgate.yaml",
		[]byte("policies:\n  api:\n    limits:\n      - {name: rpm, roling: 1m, amount: -1}\n"))
	fmt.Println(config.Problems(problems))
	// Output:
	// drawgate.yaml:4:21: unknown key "roling" in a limit; did you mean "rolling"?
	//     4 |       - {name: rpm, roling: 1m, amount: -1}
	//       |                     ^^^^^^
	// drawgate.yaml:4:41: amount -1 is not between 0 and 1000000000000
	//     4 |       - {name: rpm, roling: 1m, amount: -1}
	//       |                                         ^^
}

func ExampleFromEnv() {
	c, err := config.FromEnv([]string{
		"RATE_LIMIT_PER_DAY=400", "RATE_LIMIT_PER_WEEK=0",
		"RATE_LIMIT_STORAGE_PATH=/var/lib/app/limits.db",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(c)
	// Output:
	// store: sqlite:///var/lib/app/limits.db
	// policies.multi-tier.limits.minute: {name: minute, rolling: 1m, amount: 20, precision: exact}
	// policies.multi-tier.limits.hour: {name: hour, rolling: 1h, amount: 100, precision: exact}
	// policies.multi-tier.limits.day: {name: day, rolling: 1d, amount: 400, precision: exact, fallback: open}
	// policies.multi-tier.limits.month: {name: month, rolling: 30d, amount: 7500, precision: exact, fallback: open}
	// policies.multi-tier.fallback: share
	// policies.multi-tier.start: full
}
