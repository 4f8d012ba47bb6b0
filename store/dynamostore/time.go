package dynamostore

import "time"

// takeTime is how long a take may need: a read and a write over TLS, and up to four pauses between
// attempts.
const takeTime = time.Second

// TakeTime implements [store.Timed]. In less time a take may be cut off when its units are
// spent, and a throttled one has fewer than five attempts.
func (s *Store) TakeTime(set time.Duration) time.Duration {
	if set <= 0 {
		return takeTime
	}
	if set < takeTime {
		s.hasty.Do(func() {
			s.logger.Warn("dynamostore: takes have less time than a table may need: those that are cut off may be spent for nobody; leave the timeout out, or set it to at least what is needed", "timeout", set, "needs", takeTime)
		})
	}
	return set
}
