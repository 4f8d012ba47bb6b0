package api

import (
	"encoding/json"
	"strconv"
	"time"
)

// Millis is a waiting time in milliseconds.
type Millis int64

// Never is the wait of a take that can never pass: null in JSON. As a [time.Duration] it is about
// 278 years.
const Never Millis = 1 << 43

// Duration returns the wait as a [time.Duration].
func (m Millis) Duration() time.Duration { return time.Duration(min(m, Never)) * time.Millisecond }

// MarshalJSON implements [json.Marshaler].
func (m Millis) MarshalJSON() ([]byte, error) {
	if m >= Never {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(m), 10), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Millis) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*m = Never
		return nil
	}
	return json.Unmarshal(data, (*int64)(m))
}
