package peers

import (
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/alibaba/sentinel-golang/api"
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/config"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/hotspot"
	"github.com/alibaba/sentinel-golang/logging"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

func sentinels() []lim.Inproc {
	return []lim.Inproc{
		{Name: "sentinel-flow", Alg: "sliding window QPS per resource", New: sentinelFlow},
		{Name: "sentinel-hotspot", Alg: "token bucket per parameter value", Keyed: true, New: sentinelHotspot},
	}
}

func sentinelFlow(s lim.Spec) (lim.Limiter, error) {
	res, err := sentinelResource()
	if err != nil {
		return nil, err
	}
	_, err = flow.LoadRules([]*flow.Rule{{
		Resource: res, Threshold: s.PerSecond(), TokenCalculateStrategy: flow.Direct,
		ControlBehavior: flow.Reject, StatIntervalInMs: 1000,
	}})
	return lim.Func(func(_ context.Context, _ string, n int) (bool, error) {
		return sentinelEntry(res, api.WithTrafficType(base.Inbound), api.WithBatchCount(uint32(n))), nil
	}), err
}

func sentinelHotspot(s lim.Spec) (lim.Limiter, error) {
	res, err := sentinelResource()
	if err != nil {
		return nil, err
	}
	_, err = hotspot.LoadRules([]*hotspot.Rule{{
		Resource: res, MetricType: hotspot.QPS, ControlBehavior: hotspot.Reject, ParamIndex: 0,
		Threshold: int64(s.PerSecond()), DurationInSec: 1, ParamsMaxCapacity: 2_000_000,
	}})
	return lim.Func(func(_ context.Context, k string, n int) (bool, error) {
		return sentinelEntry(res, api.WithTrafficType(base.Inbound), api.WithBatchCount(uint32(n)), api.WithArgs(k)),
			nil
	}), err
}

func sentinelEntry(res string, opts ...api.EntryOption) bool {
	e, blocked := api.Entry(res, opts...)
	if blocked != nil {
		return false
	}
	e.Exit()
	return true
}

var (
	sentinelInit = sync.OnceValue(func() error {
		logging.ResetGlobalLoggerLevel(logging.ErrorLevel)
		dir, err := os.MkdirTemp("", "sentinel")
		if err != nil {
			return err
		}
		c := config.NewDefaultConfig()
		c.Sentinel.Log.Dir = dir
		c.Sentinel.Log.Metric.FlushIntervalSec = 0
		return api.InitWithConfig(c)
	})
	sentinelCount atomic.Int64
)

// sentinelResource is a fresh name each time: rules reloaded for one resource keep its old
// statistics.
func sentinelResource() (string, error) {
	return "r" + strconv.FormatInt(sentinelCount.Add(1), 10), sentinelInit()
}
