package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// roundTrips counts the requests of a take by one caller, and their time.
func (b *bench) roundTrips(rep int) error {
	for _, kind := range []string{"bucket", "calendar", "rolling", "three"} {
		for _, s := range situations {
			if !b.only.MatchString(s.name + "/drawgate-" + kind) {
				continue
			}
			if err := b.trips(s, kind, rep); err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, kind, err)
			}
		}
	}
	return nil
}

// situation is where a take finds its bucket.
type situation struct {
	name string
	key  func(i int) string
	// store is which of two stores the take number i is made by, as if each were a process; -1 is
	// a new one, which has no connections.
	store func(i int) int
}

var situations = []situation{
	{"trip-last-writer", oneKey, func(int) int { return 0 }},
	{"trip-new-bucket", strconv.Itoa, func(int) int { return 0 }},
	{"trip-other-writer", oneKey, func(i int) int { return i % 2 }},
	{"trip-new-process", tenth, func(int) int { return -1 }},
}

func oneKey(int) string { return "k" }

// tenth keeps items small: each process leaves a mark in the item.
func tenth(i int) string { return strconv.Itoa(i / 10) }

func (b *bench) trips(s situation, kind string, rep int) error {
	at, err := startStandin()
	if err != nil {
		return err
	}
	defer at.Stop()
	if err := prepareOurs(at, kind); err != nil {
		return err
	}
	p, err := startProxy(at.url, func() { time.Sleep(*tripDelay) })
	if err != nil {
		return err
	}
	defer p.close()
	ctx := context.Background()
	open := func() (*dynamostore.Store, error) { return dynamostore.Open(ctx, storeURL(p.url), nil) }
	stores := make([]*dynamostore.Store, 2)
	for i := range stores {
		if stores[i], err = open(); err != nil {
			return err
		}
		defer stores[i].Close() //nolint:errcheck // nothing is under way
	}
	var hist, outside stat.Hist // outside: without the time in the stand-in
	var calls []request
	most := 0
	one := func(i int) error {
		var st *dynamostore.Store
		if n := s.store(i); n >= 0 {
			st = stores[n]
		} else if st, err = open(); err != nil {
			return err
		}
		take, err := taker(st, kind)
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := take(ctx, s.key(i)); err != nil {
			return err
		}
		took := time.Since(began)
		hist.Add(took)
		made, _ := p.take()
		for _, r := range made {
			took -= r.took
		}
		outside.Add(max(0, took))
		most, calls = max(most, len(made)), append(calls, made...)
		return nil
	}
	const warm = 4 // the stores connect
	for i := range warm {
		if err := one(i); err != nil {
			return err
		}
	}
	g := sysx.Gate{MaxOther: *maxOther, Patience: 5 * time.Second, Tries: 1}
	hist, outside, calls, most = stat.Hist{}, stat.Hist{}, nil, 0
	u := g.Run(func() {
		for i := range *trips {
			if err = one(warm + i); err != nil {
				return
			}
		}
	}, at.PID())
	if err != nil {
		return err
	}
	m := map[string]float64{
		"p50_us": hist.Quantile(.5), "p99_us": hist.Quantile(.99), "max_us": float64(hist.Max.Microseconds()),
		"outside_p50_us": outside.Quantile(.5), "outside_p99_us": outside.Quantile(.99), "requests_max": float64(most),
		"other_cores": u.Other,
	}
	if err := at.costs(m, calls, float64(*trips)); err != nil {
		return err
	}
	return b.put("drawgate-"+kind, s.name, rep, m, strings.Join(operations(calls), ", "))
}
