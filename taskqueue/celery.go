package taskqueue

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Celery's remote control: a message to the exchange celery.pidbox reaches all workers, and each
// sends its answer to the exchange and with the routing key that the message names. (kombu 5.7,
// kombu/pidbox.py; celery/worker/control.py has the commands.)
const (
	mailbox        = "celery.pidbox" // the default of control_exchange, and this suffix
	replyExchange  = "reply.celery.pidbox"
	jsonType       = "application/json"
	commandQueues  = "active_queues"
	commandActive  = "active"
	commandPlanned = "scheduled"
	commandFetched = "reserved"
)

var commands = []string{commandQueues, commandActive, commandPlanned, commandFetched}

// inquiry asks all workers all commands, and collects what they answer.
type inquiry struct {
	args     bool                                  // with the arguments of tasks
	id       string                                // the routing key of the answers
	requests map[string][]byte                     // by ticket, which is the command
	answers  map[string]map[string]json.RawMessage // by worker and command
}

func newInquiry(args bool) (*inquiry, error) {
	q := &inquiry{
		args: args, id: "drawgate-" + rand.Text(), requests: map[string][]byte{},
		answers: map[string]map[string]json.RawMessage{},
	}
	for _, c := range commands {
		body, err := json.Marshal(map[string]any{
			"method": c, "arguments": map[string]any{}, "destination": nil, "pattern": nil, "matcher": nil,
			"ticket": c, "reply_to": map[string]string{"exchange": replyExchange, "routing_key": q.id},
		})
		if err != nil {
			return nil, err
		}
		q.requests[c] = body
	}
	return q, nil
}

// replyQueue is the queue of the answers.
func (q *inquiry) replyQueue() string { return q.id + "." + replyExchange }

// add adds an answer: {"worker's name": what it says}. Answers to what was not asked are ignored.
func (q *inquiry) add(ticket, contentType string, body []byte) error {
	if q.requests[ticket] == nil {
		return nil
	}
	if contentType != jsonType {
		return fmt.Errorf("%w: a worker answered as %s: only JSON can be read; set Celery's task_serializer to json",
			ErrBroker, contentType)
	}
	var said map[string]json.RawMessage
	if err := json.Unmarshal(body, &said); err != nil {
		return fmt.Errorf("%w: a worker's answer to %s cannot be read: %w", ErrBroker, ticket, err)
	}
	for worker, answer := range said {
		if q.answers[worker] == nil {
			q.answers[worker] = map[string]json.RawMessage{}
		}
		q.answers[worker][ticket] = answer
	}
	return nil
}

// complete reports whether n workers have answered everything.
func (q *inquiry) complete(n int) bool {
	answers := 0
	for _, a := range q.answers {
		answers += len(a)
	}
	return answers >= n*len(commands)
}

// workers returns what the workers answered. What a worker could not answer stays empty.
func (q *inquiry) workers() []Worker {
	list := []Worker{}
	for _, name := range slices.Sorted(maps.Keys(q.answers)) {
		w := Worker{Name: name, Queues: []string{}, Active: []Task{}, Reserved: []Task{}, Scheduled: []Task{}}
		for _, command := range commands {
			w.answered(command, q.answers[name][command])
		}
		w.settle(q.args)
		list = append(list, w)
	}
	return list
}

// celeryTask is a task as workers describe it.
type celeryTask struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Args         json.RawMessage `json:"args"`
	Kwargs       json.RawMessage `json:"kwargs"`
	TimeStart    *float64        `json:"time_start"` // in seconds since 1970
	DeliveryInfo struct {
		RoutingKey string `json:"routing_key"`
	} `json:"delivery_info"`
}

// answered adds the answer to a command; nil if there is none.
func (w *Worker) answered(command string, answer json.RawMessage) {
	var err error
	switch command {
	case commandQueues:
		var list []struct{ Name string }
		err = json.Unmarshal(answer, &list)
		for _, q := range list {
			w.Queues = append(w.Queues, q.Name)
		}
	case commandActive:
		w.Active, err = tasks(answer)
	case commandFetched:
		w.Reserved, err = tasks(answer)
	case commandPlanned:
		var list []struct {
			ETA     string     `json:"eta"`
			Request celeryTask `json:"request"`
		}
		err = json.Unmarshal(answer, &list)
		for _, s := range list {
			t := s.Request.task()
			if eta, err := time.Parse(time.RFC3339, s.ETA); err == nil {
				t.ETA = new(eta.UTC())
			}
			w.Scheduled = append(w.Scheduled, t)
		}
	}
	switch {
	case answer == nil:
		w.Error = "no answer to " + command + " in time"
	case err != nil:
		w.Error = "no list as answer to " + command // the worker failed
	}
}

// settle sorts the lists, leaves out of Reserved what is scheduled as well, and removes arguments
// that nobody asked for.
func (w *Worker) settle(args bool) {
	slices.Sort(w.Queues)
	w.Reserved = slices.DeleteFunc(w.Reserved, func(t Task) bool {
		return slices.ContainsFunc(w.Scheduled, func(s Task) bool { return s.ID == t.ID })
	})
	for _, list := range [][]Task{w.Active, w.Reserved, w.Scheduled} {
		for i := range list {
			if !args {
				list[i].Args, list[i].Kwargs = nil, nil
			}
		}
		slices.SortFunc(list, func(a, b Task) int {
			return cmp.Or(compareTimes(a.Started, b.Started), compareTimes(a.ETA, b.ETA), strings.Compare(a.ID, b.ID))
		})
	}
}

func tasks(answer json.RawMessage) ([]Task, error) {
	var list []celeryTask
	err := json.Unmarshal(answer, &list)
	all := []Task{}
	for i := range list {
		all = append(all, list[i].task())
	}
	return all, err
}

func (c *celeryTask) task() Task {
	t := Task{ID: c.ID, Name: c.Name, Queue: c.DeliveryInfo.RoutingKey, Args: c.Args, Kwargs: c.Kwargs}
	if c.TimeStart != nil {
		whole, part := math.Modf(*c.TimeStart)
		t.Started = new(time.Unix(int64(whole), int64(part*1e9)).UTC())
	}
	return t
}

// compareTimes orders times; unknown ones are last.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}
