// Package peers lists the measured systems, one list per section. A system is added by one entry;
// it is then measured in the same run as all others. Names that start with "floor-" are yardsticks,
// not limiters one could use.
package peers

import (
	"slices"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

// Inproc lists section A.
func Inproc() []lim.Inproc {
	return slices.Concat(inprocFloors(), ours(), inprocLibraries(), sentinels())
}

// Redis lists sections B and E.
func Redis() []lim.Redis { return slices.Concat(redisFloors(), oursRedis(), redisLibraries()) }

// SQLite lists section D.
func SQLite() []lim.SQLite { return slices.Concat(sqliteFloors(), oursSQLite()) }
