package main

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/drive"
	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/benchmarks/lim"
)

var specAccuracy = lim.Spec{Rate: 100, Period: time.Second, Burst: 100}

const (
	accuracyCallers = 64
	faultRun        = 12 * time.Second
	outageFrom      = 4 * time.Second
	outageTo        = 7 * time.Second
)

// accuracy runs 64 callers flat out on one key. In mode stop Redis is paused for three seconds in
// the middle; in mode kill it is killed there and started again empty. Calls have no deadline and
// clients have their defaults.
func accuracy(o *stat.Out, limiters []lim.Redis) error {
	for rep := 1; rep <= *reps; rep++ {
		for _, e := range limiters {
			if e.NoAcc {
				continue
			}
			row, err := accuracyRun(e)
			if err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
			row.Rep = rep
			if err := o.Put(row); err != nil {
				return err
			}
		}
	}
	return nil
}

func accuracyRun(e lim.Redis) (stat.Row, error) {
	server, err := sysx.StartRedis(*port)
	if err != nil {
		return stat.Row{}, err
	}
	defer func() { server.Kill() }() // the server of then
	l, err := e.New(env(server.Addr), specAccuracy)
	if err != nil {
		return stat.Row{}, err
	}
	d := faultRun
	if *mode == "acc" {
		d = *accDur
	}
	fault := make(chan error, 1)
	go func() { fault <- outage(&server) }()
	a := drive.RunAccuracy(accuracyCallers, d, func(ctx context.Context, _ *lim.Rand) (bool,
		error,
	) {
		return l.Allow(ctx, "k", 1)
	})
	if err := <-fault; err != nil {
		return stat.Row{}, err
	}
	m := a.Metrics(specAccuracy.Admits(d))
	if *mode != "acc" {
		a.AddOutage(m, outageFrom, outageTo)
	}
	go lim.Close(l) // it may never return when callers are stuck
	return stat.Row{Section: "E", Name: e.Name, Case: *mode, M: m, Note: a.Note()}, nil
}

// outage makes the fault of the mode; a killed server is replaced in *server.
func outage(server **sysx.Redis) error {
	if *mode == "acc" {
		return nil
	}
	time.Sleep(outageFrom)
	if *mode == "stop" {
		if err := (*server).Pause(); err != nil {
			return err
		}
		time.Sleep(outageTo - outageFrom)
		return (*server).Resume()
	}
	(*server).Kill()
	time.Sleep(outageTo - outageFrom)
	s, err := sysx.StartRedis(*port)
	if err == nil {
		*server = s
	}
	return err
}
