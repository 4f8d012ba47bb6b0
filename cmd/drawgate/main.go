// Command drawgate keeps programs inside their quotas: from scripts, around commands, and as a
// server.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // calendar limits work on machines without a time zone database
)

func main() { os.Exit(run(context.Background(), os.Args)) }
