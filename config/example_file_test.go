package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
)

// This function is in docs/configuration.md: TestConfigurationPage compares them.

func nightly(ctx context.Context, path string) (allowed bool, err error) {
	limits, err := config.Open(ctx, path, nil) // a program does this once
	if err != nil {
		return false, err
	}
	defer limits.Close()
	res, err := limits.Engine.Take(ctx, &engine.Request{Asks: []engine.Ask{{Policy: "jobs", Key: "nightly"}}})
	return res.Decision.Allowed, err
}

// From a file to a decision.
func Example_file() {
	dir, err := os.MkdirTemp("", "drawgate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "drawgate.yaml")
	text := "store: sqlite:state.db\npolicies: {jobs: {limits: [{name: rpd, rolling: 24h, amount: 1}]}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(nightly(context.Background(), path))
	fmt.Println(nightly(context.Background(), path))
	// Output:
	// true <nil>
	// false <nil>
}
