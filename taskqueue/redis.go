package taskqueue

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

type redisBroker struct {
	client rueidis.Client
	db     int
	where  string // for errors
}

func openRedis(ctx context.Context, u *url.URL) (*redisBroker, error) {
	o, err := rueidis.ParseURL(u.String())
	if err != nil || len(o.InitAddress) != 1 {
		return nil, fmt.Errorf("%w: it is not of the form redis://user:password@host:port/db", ErrURL)
	}
	if o.TLSConfig != nil && slices.Contains([]string{"none", "cert_none"},
		strings.ToLower(u.Query().Get("ssl_cert_reqs"))) {
		o.TLSConfig.InsecureSkipVerify = true // as the user says
	}
	r := &redisBroker{db: o.SelectDB, where: "Redis at " + o.InitAddress[0]}
	o.ForceSingleClient, o.DisableCache, o.DisableRetry = true, true, true
	var stop func() bool
	o.DialCtxFn = func(dial context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		c, err := connect(dial, addr, d, t)
		if err == nil && stop == nil { // the first connection: its handshake must end with ctx
			stop = context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}
	o.Dialer.Timeout = timeout
	r.client, err = rueidis.NewClient(o)
	if stop != nil {
		stop()
	}
	return r, r.failure(ctx, err)
}

func connect(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
	if t != nil {
		return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// failure returns the error of a call. err may be nil.
func (r *redisBroker) failure(ctx context.Context, err error) error {
	switch {
	case err == nil, rueidis.IsRedisNil(err):
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s did not answer in time", ErrBroker, r.where)
	}
	if said, ok := rueidis.IsRedisErr(err); ok {
		return fmt.Errorf("%w: %s refused: %s", ErrBroker, r.where, said.Error())
	}
	if strings.Contains(err.Error(), "unknown message type") { // the client has no error of its own for this
		return fmt.Errorf("%w: %s does not answer as Redis does: is it another server?", ErrBroker, r.where)
	}
	return fmt.Errorf("%w: %s cannot be reached: %w", ErrBroker, r.where, err)
}

// all runs commands in one round trip, and returns their results as integers.
func (r *redisBroker) all(ctx context.Context, cmds ...rueidis.Completed) ([]int64, error) {
	out := make([]int64, len(cmds))
	for i, res := range r.client.DoMulti(ctx, cmds...) {
		var err error
		if out[i], err = res.AsInt64(); err != nil {
			return nil, r.failure(ctx, err)
		}
	}
	return out, nil
}

// Keys of kombu and of asynq.
const (
	bindings    = "_kombu.binding." // and an exchange: the set of its bindings
	separator   = "\x06\x16"        // between the parts of a binding, and of a list's name and a priority
	maxPriority = 9
	asynqNames  = "asynq:queues"
)

func (r *redisBroker) kind(ctx context.Context) (Kind, error) {
	b := r.client.B()
	n, err := r.all(ctx, b.Exists().Key(asynqNames).Build(), b.Exists().Key(bindings+mailbox).Build())
	switch {
	case err != nil:
		return "", err
	case n[0] > 0 && n[1] > 0:
		return "", ErrKind
	case n[0] > 0:
		return Asynq, nil
	}
	return Celery, nil
}

// celeryQueues adds up each queue's lists. Tasks of priority 0 are in the list of the queue's name,
// and the others in one per step of priorities. Which steps there are is a setting of Celery's
// (0, 3, 6 and 9 by default), so all possible lists are counted.
func (r *redisBroker) celeryQueues(ctx context.Context, names []string) ([]Queue, error) {
	const per = maxPriority + 2
	var cmds []rueidis.Completed
	for _, name := range names {
		for p := range maxPriority + 1 {
			cmds = append(cmds, r.client.B().Llen().Key(list(name, p)).Build())
		}
		cmds = append(cmds, r.client.B().Exists().Key(bindings+name).Build())
	}
	n, err := r.all(ctx, cmds...)
	if err != nil {
		return nil, err
	}
	out := []Queue{}
	for i, name := range names {
		q := Queue{Name: name, Priorities: map[int]int64{}}
		for p, depth := range n[i*per : i*per+maxPriority+1] {
			if depth > 0 {
				q.Depth += depth
				q.Priorities[p] = depth
			}
		}
		q.Missing = q.Depth == 0 && n[(i+1)*per-1] == 0
		out = append(out, q)
	}
	return out, nil
}

// list returns the name of the list of a priority step.
func list(queue string, priority int) string {
	if priority == 0 {
		return queue
	}
	return queue + separator + strconv.Itoa(priority)
}

func (r *redisBroker) asynqNames(ctx context.Context) ([]string, error) {
	names, err := r.client.Do(ctx, r.client.B().Smembers().Key(asynqNames).Build()).AsStrSlice()
	slices.Sort(names)
	return names, r.failure(ctx, err)
}

// asynqQueues: see asynq v0.26.0, internal/base/base.go, for the keys.
func (r *redisBroker) asynqQueues(ctx context.Context, names []string) ([]Queue, error) {
	const per = 5
	var cmds []rueidis.Completed
	for _, name := range names {
		prefix, b := "asynq:{"+name+"}:", r.client.B()
		cmds = append(cmds, b.Llen().Key(prefix+"pending").Build(), b.Llen().Key(prefix+"active").Build(),
			b.Zcard().Key(prefix+"scheduled").Build(),
			b.Zcard().Key(prefix+"retry").Build(), b.Sismember().Key(asynqNames).Member(name).Build())
	}
	n, err := r.all(ctx, cmds...)
	if err != nil {
		return nil, err
	}
	out := []Queue{}
	for i, name := range names {
		c := n[i*per : (i+1)*per]
		s := AsynqStates{Pending: c[0], Active: c[1], Scheduled: c[2], Retry: c[3]}
		out = append(out, Queue{Name: name, Missing: c[4] == 0, Depth: s.Pending + s.Retry, States: &s})
	}
	return out, nil
}

// envelope is a message of kombu on Redis.
type envelope struct {
	Body            string         `json:"body"`
	ContentEncoding string         `json:"content-encoding"`
	ContentType     string         `json:"content-type"`
	Headers         map[string]any `json:"headers"`
	Properties      properties     `json:"properties"`
}

type properties struct {
	BodyEncoding string       `json:"body_encoding"`
	DeliveryTag  string       `json:"delivery_tag"`
	DeliveryInfo deliveryInfo `json:"delivery_info"`
}

type deliveryInfo struct {
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
}

// cleanup bounds the removal of the reply queue.
const cleanup = time.Second

// ask asks all workers. It returns how many are connected: as many receive what is published.
//
// Workers find the queue of an answer in the set of the exchange's bindings: routing key, pattern
// and queue.
func (r *redisBroker) ask(ctx context.Context, q *inquiry, wait time.Duration) (workers int, err error) {
	b := r.client.B()
	binding := strings.Join([]string{q.id, "", q.replyQueue()}, separator)
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		b := r.client.B()
		// If this fails, a name that nobody uses again stays in the set.
		_, _ = r.all(end, b.Srem().Key(bindings+replyExchange).Member(binding).Build(),
			b.Del().Key(q.replyQueue()).Build())
	}()
	cmds := []rueidis.Completed{b.Sadd().Key(bindings + replyExchange).Member(binding).Build()}
	for _, c := range commands {
		m, err := json.Marshal(envelope{
			Body: base64.StdEncoding.EncodeToString(q.requests[c]), ContentEncoding: "utf-8", ContentType: jsonType,
			Headers: map[string]any{},
			Properties: properties{
				BodyEncoding: "base64", DeliveryTag: q.id + c,
				DeliveryInfo: deliveryInfo{Exchange: mailbox},
			},
		})
		if err != nil {
			return 0, err
		}
		cmds = append(cmds, b.Publish().Channel(fmt.Sprintf("/%d.%s", r.db, mailbox)).Message(string(m)).Build())
	}
	n, err := r.all(ctx, cmds...)
	if err != nil {
		return 0, err
	}
	workers = int(slices.Max(n[1:]))
	return workers, r.collect(ctx, q, workers, wait)
}

// collect reads answers until all workers have answered, or the time is over.
func (r *redisBroker) collect(ctx context.Context, q *inquiry, workers int, wait time.Duration) error {
	for end := time.Now().Add(wait); !q.complete(workers); {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		got, err := r.client.Do(ctx, r.client.B().Brpop().Key(q.replyQueue()).Timeout(max(left,
			time.Millisecond).Seconds()).Build()).AsStrSlice()
		if rueidis.IsRedisNil(err) {
			return nil
		}
		if err := r.failure(ctx, err); err != nil {
			return err
		}
		if err := q.read(got[1]); err != nil {
			return err
		}
	}
	return nil
}

// read adds an answer.
func (q *inquiry) read(text string) error {
	var m envelope
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fmt.Errorf("%w: a worker's answer cannot be read: %w", ErrBroker, err)
	}
	body := []byte(m.Body)
	if m.Properties.BodyEncoding == "base64" {
		var err error
		if body, err = base64.StdEncoding.DecodeString(m.Body); err != nil {
			return fmt.Errorf("%w: a worker's answer cannot be read: %w", ErrBroker, err)
		}
	}
	ticket, _ := m.Headers["ticket"].(string)
	return q.add(ticket, m.ContentType, body)
}
