package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
)

// shownBuckets is how many buckets of a policy plan prints. As JSON it prints all of them.
const shownBuckets = 10

// refusedBuckets looks at the store of both files, and returns a change for each bucket in which a
// limit of the new file is used up and none of the old one is: its next take would be refused.
func (a *app) refusedBuckets(ctx context.Context, before, after string) (list []change, err error) {
	was, err := a.openFile(before)
	if err != nil {
		return nil, err
	}
	defer was.close()
	is, err := a.openFile(after)
	if err != nil {
		return nil, err
	}
	defer is.close()
	switch {
	case was.empty || is.empty:
		return nil, usage("with limits switched off and without policies there are no buckets: leave --buckets out")
	case was.Store != is.Store || was.Prefix != is.Prefix:
		return nil, usage("the two files have different stores or prefixes, so all buckets start unused: leave --buckets out")
	}
	lister, ok := is.opened.(store.Lister)
	if !ok {
		return nil, usage("this store cannot list its buckets: leave --buckets out")
	}
	for _, policy := range is.names() {
		if was.engine.Limiter(policy) == nil || is.info(policy).Shadow || !is.info(policy).DisabledUntil.IsZero() {
			continue // all of its buckets are new, or it refuses nothing
		}
		some, err := a.refusedOf(ctx, lister, was, is, policy)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

// openFile opens a configuration to look at its store.
func (a *app) openFile(path string) (*session, error) {
	b := *a
	b.flags.Config = path
	return b.open(true)
}

// refusedOf is refusedBuckets for one policy.
func (a *app) refusedOf(ctx context.Context, lister store.Lister, was, is *session, policy string) (list []change,
	err error,
) {
	var keys []string
	err = lister.List(ctx, a.tenant, policy, func(k drawgate.Key) bool {
		keys = append(keys, k.Name)
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		now, err := is.look(ctx, policy, &askFlags{key: key})
		if err != nil {
			return nil, err
		}
		full := usedUp(&now)
		if full == nil {
			continue
		}
		old, err := was.look(ctx, policy, &askFlags{key: key})
		if err != nil {
			return nil, err
		}
		if usedUp(&old) != nil {
			continue
		}
		list = append(list, change{
			What: "bucket_refused", Policy: policy, Limit: full.Name, Tenant: a.tenant, Key: key,
			Text: fmt.Sprintf("policy %q, limit %q, key %q: refused at once: used %s", policy, full.Name, key,
				present.Used(full)),
		})
	}
	if len(list) == 0 {
		return nil, nil
	}
	sum := change{What: "buckets_refused", Policy: policy, Tenant: a.tenant, After: strconv.Itoa(len(list))}
	sum.Text = fmt.Sprintf("policy %q: %d of %s would be refused at once", policy, len(list),
		present.Count(len(keys), "bucket"))
	return append([]change{sum}, list...), nil
}

// printChanges prints changes, but not all of many buckets.
func (a *app) printChanges(list []change) {
	buckets := 0
	for _, c := range list {
		if c.What == "bucket_refused" {
			buckets++
		} else {
			buckets = 0
		}
		switch {
		case buckets <= shownBuckets:
			a.printf("%s\n", c.Text)
		case buckets == shownBuckets+1:
			a.printf("… and further ones; --json lists all\n")
		}
	}
}

// usedUp returns a limit of which nothing is left; nil if there is none.
func usedUp(w *api.StatusAnswer) *api.LimitStatus {
	for i := range w.Limits {
		if w.Limits[i].Remaining <= 0 {
			return &w.Limits[i]
		}
	}
	return nil
}
