package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/similar"
)

// How keys in use are looked for when a status has nothing to show.
const (
	inUseShown = 10
	inUseTime  = 3 * time.Second
	inUseTypos = 2 // letters by which a mistyped key differs, at most
)

// unused reports whether nothing is used of any of the buckets, and none is paused.
func unused(all []api.StatusAnswer) bool {
	for i := range all {
		if all[i].Open > 0 || all[i].Paused != nil {
			return false
		}
		for _, l := range all[i].Limits {
			if l.Used > 0 || l.Held > 0 {
				return false
			}
		}
	}
	return len(all) > 0
}

// keysInUse says which keys are in use where nothing is under the key of a status, which may be
// mistyped; "" if none are, or that cannot be read in a short time.
func keysInUse(ctx context.Context, c *client.Client, f *askFlags, tenant string) string {
	ctx, cancel := context.WithTimeout(ctx, inUseTime)
	defer cancel()
	u, err := c.Usage(ctx, client.UsageQuery{Policy: f.policy, Tenant: tenant, Limit: api.MaxBuckets})
	if client.Code(err) == api.CodeNotFound {
		return fmt.Sprintf("nothing is used under key %q; with --server and the server's address for administrators this shows which keys are in use", f.key)
	}
	if err != nil || len(u.Buckets) == 0 {
		return ""
	}
	var keys, shown []string
	seen := map[string]bool{}
	for i := range u.Buckets {
		k := u.Buckets[i].Key
		if seen[k] {
			continue
		}
		seen[k] = true
		keys = append(keys, k)
		if len(shown) < inUseShown {
			shown = append(shown, k)
		}
	}
	text := fmt.Sprintf("nothing is used under key %q", f.key)
	if meant := similar.To(f.key, keys, min(inUseTypos, len(f.key)/2)); meant != "" {
		text += fmt.Sprintf("; did you mean %q? In use", meant)
	} else {
		text += ". In use"
	}
	text += ", the most used first: " + strings.Join(shown, ", ")
	if more := u.Total - len(shown); more > 0 && len(keys) > len(shown) {
		text += fmt.Sprintf(", … (%d buckets)", u.Total)
	}
	if f.key == api.DefaultKey {
		text += "; choose one with --key"
	}
	return text
}

// keysInUse is the same for the store of this process. In DynamoDB each bucket that is read costs
// money: there it looks for none.
func (s *session) keysInUse(ctx context.Context, f *askFlags) string {
	if usageEvery(s.Store) > 0 {
		return ""
	}
	h, end, err := s.administer(nil)
	if err != nil {
		return ""
	}
	defer end()
	c, err := client.New("http://drawgate", &client.Options{HTTPClient: &http.Client{Transport: h}, Attempts: 1})
	if err != nil {
		return ""
	}
	defer c.Close()
	return keysInUse(ctx, c, f, s.tenant)
}
