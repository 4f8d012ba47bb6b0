package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Looks at many buckets. Of most of them the header says everything: nothing is held, nobody waits,
// and no rolling limit has older entries. So the headers of all are read first, each in a twentieth
// of the time that the script needs, and it looks only at the others.

// lookAtHeaders answers looks by headers alone. It returns those for which the script is needed,
// for whatever reason.
func (s *Store) lookAtHeaders(ctx context.Context, c rueidis.Client, reqs []*request) (rest []*request) {
	cmds := make(rueidis.Commands, 0, len(reqs)+1)
	cmds = append(cmds, c.B().Time().Build())
	for _, r := range reqs {
		cmds = append(cmds, c.B().Hmget().Key(r.keys[0]).Field("h", "g", "l").Build())
	}
	res := c.DoMulti(ctx, cmds...)
	time, err := res[0].AsIntSlice()
	if err != nil || len(time) != 2 {
		return reqs
	}
	now := time[0]*1e6 + time[1]
	if s.clock != nil {
		now = s.clock()
	}
	s.learn(now)
	for i, r := range reqs {
		if r.known != "" || !answerByHeader(r, &res[1+i], now) {
			rest = append(rest, r)
		}
	}
	return rest
}

// answerByHeader reports whether it could.
func answerByHeader(r *request, res *rueidis.RedisResult, now int64) bool {
	got, err := res.ToArray()
	if err != nil || len(got) != 3 || !got[2].IsNil() {
		return false
	}
	head, rec := "", &record.Record{}
	if !got[0].IsNil() {
		if head, err = got[0].ToString(); err != nil {
			return false
		}
	}
	if head != "" {
		st, err := readHeader(head, len(store.Internal.Specs(r.buckets[0].Plan, false)))
		if err != nil || st.open > 0 || st.older || !knownHistory(&got[1]) {
			return false
		}
		st.complete(nil)
		rec = &st.rec
	}
	*r.state = store.Internal.Describe(&r.buckets[0], rec, nil, r.priority, false, now)
	return true
}

// knownHistory reports whether a record's history is in a form that the script can read, too.
func knownHistory(m *rueidis.RedisMessage) bool {
	if m.IsNil() {
		return true
	}
	text, err := m.ToString()
	return err == nil && len(text) >= 18 && text[0] == 1
}
