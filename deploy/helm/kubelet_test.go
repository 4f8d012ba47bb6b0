package helm_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// probing asks as the kubelet does, on connections of its own, until ctx ends. changed is called
// whenever enough answers in a row say something else than before.
func probing(ctx context.Context, p *corev1.Probe, addr string, changed func(good bool)) {
	c := &http.Client{
		Timeout: seconds(p.TimeoutSeconds, 1),
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the kubelet does
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	tick := time.NewTicker(seconds(p.PeriodSeconds, 10))
	defer tick.Stop()
	good, known, other := false, false, int32(0)
	for {
		now := asked(ctx, c, url(p, addr))
		switch {
		case ctx.Err() != nil:
			return
		case known && now == good:
			other = 0
		default:
			other++
		}
		need := max(1, p.SuccessThreshold)
		if !now {
			need = max(1, p.FailureThreshold)
			if p.FailureThreshold == 0 {
				need = 3
			}
		}
		if other >= need && (!known || now != good) {
			good, known, other = now, true, 0
			changed(good)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func asked(ctx context.Context, c *http.Client, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	res, err := c.Do(r)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode >= 200 && res.StatusCode < 400
}

func seconds(n, otherwise int32) time.Duration {
	if n == 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

// watched are the two probes of a pod that runs.
type watched struct {
	ready chan struct{} // closed when it is ready for the first time
	stop  context.CancelFunc
	sick  atomic.Int64 // how often a probe said that it is not well any more
}

// watch asks both probes of a pod. addr says where its ports are.
func (p *pod) watch(t *testing.T, addr func(port int) string) *watched {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{ready: make(chan struct{}), stop: stop}
	c := p.container()
	was := false
	go probing(ctx, c.ReadinessProbe, addr(p.port(t, c.ReadinessProbe.HTTPGet.Port.StrVal)), func(good bool) {
		if good && !was {
			was = true
			close(w.ready)
		} else if was && !good {
			w.sick.Add(1)
		}
	})
	go probing(ctx, c.LivenessProbe, addr(p.port(t, c.LivenessProbe.HTTPGet.Port.StrVal)), func(good bool) {
		if !good {
			w.sick.Add(1)
		}
	})
	return w
}

// await waits until a pod is ready.
func (w *watched) await(t *testing.T, log *output) {
	t.Helper()
	select {
	case <-w.ready:
	case <-time.After(3 * time.Minute):
		t.Fatalf("the pod is not ready:\n%s", log)
	}
}

// loopback returns where a port of a pod's arguments listens in a test.
func loopback(ports map[int]string) func(port int) string {
	return func(port int) string { return ports[port] }
}

// onLoopback replaces addresses such as :7878 in arguments, and in the values of variables.
func onLoopback(list []string, ports map[int]string) (all []string) {
	for _, text := range list {
		name, value, isVariable := strings.Cut(text, "=")
		if !isVariable {
			name, value = "", text
		}
		for port, addr := range ports {
			if value == net.JoinHostPort("", strconv.Itoa(port)) {
				value = addr
			}
		}
		if isVariable {
			value = name + "=" + value
		}
		all = append(all, value)
	}
	return all
}
