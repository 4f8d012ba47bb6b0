package simulator_test

import (
	"testing"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/llm/simulator"
)

// TestFreeTierIsTheSameInTheFile: the limits of config's preset gemini-free are those that the
// simulator enforces for it, by names: the two share no code.
func TestFreeTierIsTheSameInTheFile(t *testing.T) {
	t.Parallel()
	data, err := config.Preset(config.GeminiFree)
	if err != nil {
		t.Fatal(err)
	}
	file, problems := config.Parse(config.GeminiFree, data)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	quotas, err := simulator.Preset(config.GeminiFree)
	if err != nil {
		t.Fatal(err)
	}
	enforced := map[string]int64{}
	for _, q := range quotas {
		for _, l := range q.Limits {
			enforced[q.Name+"/"+l.Name] = l.Amount
		}
	}
	compared := 0
	for _, p := range file.Policies {
		for _, l := range p.Limits {
			name := p.Name + "/" + l.Name
			if enforced[name] != l.Amount {
				t.Errorf("%s: %d in the preset, the simulator enforces %d", name, l.Amount, enforced[name])
			}
			compared++
		}
	}
	if compared < 4 {
		t.Errorf("compared %d limits, want those of two models", compared)
	}
}
