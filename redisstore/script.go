package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name of a script, as the server gives it
	_ "embed"
	"encoding/hex"

	"github.com/redis/rueidis"
)

//go:embed script.lua
var body string

var production = newScript(body)

type script struct{ body, sha string }

func newScript(body string) script {
	sum := sha1.Sum([]byte(body)) //nolint:gosec // see above
	return script{body, hex.EncodeToString(sum[:])}
}

// call is one call of the script.
type call struct{ keys, args []string }

// run calls the script for requests, in order, and returns what it answers: in room, which has one place, if that is enough. Only calls of which the server
// says that it does not know the script are sent again, once.
func (s *Store) run(ctx context.Context, c rueidis.Client, reqs []*request, room []rueidis.RedisResult) []rueidis.RedisResult {
	if len(reqs) == 1 {
		room[0] = c.Do(ctx, s.command(c, &reqs[0].call))
		if unknownScript(&room[0]) && s.load(ctx, c, &room[0]) {
			room[0] = c.Do(ctx, s.command(c, &reqs[0].call))
		}
		return room
	}
	cmds := make(rueidis.Commands, len(reqs))
	for i, r := range reqs {
		cmds[i] = s.command(c, &r.call)
	}
	res := c.DoMulti(ctx, cmds...)
	var again []int
	for i := range res {
		if unknownScript(&res[i]) {
			again = append(again, i)
		}
	}
	if len(again) == 0 || !s.load(ctx, c, &res[again[0]]) {
		return res
	}
	cmds = cmds[:0]
	for _, i := range again {
		cmds = append(cmds, s.command(c, &reqs[i].call))
	}
	for k, r := range c.DoMulti(ctx, cmds...) {
		res[again[k]] = r
	}
	return res
}

func (s *Store) command(c rueidis.Client, call *call) rueidis.Completed {
	return c.B().Evalsha().Sha1(s.script.sha).Numkeys(int64(len(call.keys))).Key(call.keys...).Arg(call.args...).Build()
}

func unknownScript(r *rueidis.RedisResult) bool {
	err := r.Error()
	if err == nil {
		return false
	}
	re, ok := rueidis.IsRedisErr(err)
	return ok && re.IsNoScript()
}

// load gives the server the script. The answer to a call that was not carried out for want of it becomes load's, if that fails for another
// reason than that there was no answer.
func (s *Store) load(ctx context.Context, c rueidis.Client, res *rueidis.RedisResult) bool {
	r := c.Do(ctx, c.B().ScriptLoad().Script(s.script.body).Build())
	if err := r.Error(); err != nil {
		if _, ok := rueidis.IsRedisErr(err); ok {
			*res = r
		}
		return false
	}
	return true
}
