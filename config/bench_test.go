package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// BenchmarkParse measures reloading a configuration with every setting and many rules.
func BenchmarkParse(b *testing.B) {
	everything, err := os.ReadFile("testdata/good/everything.yaml")
	if err != nil {
		b.Fatal(err)
	}
	var many strings.Builder
	many.WriteString(fileOf(1) + "rules:\n")
	for i := range 2000 {
		fmt.Fprintf(&many, "  - {name: r%d, match: {path: /v1/%d/*}, apply: [{policy: a, key: ip, limits: {a: %d}}]}\n",
			i, i, i+1)
	}
	for name, data := range map[string][]byte{"everything": everything, "rules=2000": []byte(many.String())} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, problems := config.Parse("f", data); len(problems) > 0 {
					b.Fatal(config.Problems(problems))
				}
			}
		})
	}
}
