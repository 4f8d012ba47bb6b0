package telemetry

import (
	"context"
	"log/slog"
)

// Log returns a sink that writes warnings to logger: a milestone below 95 %, a divergence, the end
// of a fallback and a circuit that closes at level Info, everything else at Warn. Keys appear as
// hashes only, in the attribute "identifier". It leaves out incidents and lost data: who notices
// them has logged them.
func Log(logger *slog.Logger) func(*Warning) {
	return func(w *Warning) {
		if w.Kind == Incident || w.Kind == StoreLost {
			return
		}
		logger.LogAttrs(context.Background(), level(w), w.Message(), attributes(w)...)
	}
}

func level(w *Warning) slog.Level {
	switch w.Kind {
	case Milestone:
		if w.Percent < 95 {
			return slog.LevelInfo
		}
	case ShadowDivergence, FallbackEnded, CircuitClosed:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// attributes lists the fields of a warning that are set.
func attributes(w *Warning) []slog.Attr {
	all := []slog.Attr{slog.String("event", string(w.Kind))}
	text := func(name, value string) {
		if value != "" {
			all = append(all, slog.String(name, value))
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			all = append(all, slog.Int64(name, value))
		}
	}
	text("policy", w.Policy)
	text("limit", w.Limit)
	text("period", w.Period)
	text("unit", w.Unit)
	text("identifier", w.Identifier)
	number("percent", int64(w.Percent))
	number("used", w.Used)
	number("most", w.Most)
	if w.RetryAfter > 0 {
		all = append(all, slog.Duration("retry_after", w.RetryAfter))
	}
	if !w.ResetAt.IsZero() {
		all = append(all, slog.Time("reset_at", w.ResetAt.UTC()))
	}
	number("suppressed", w.Suppressed)
	number("would_refuse", w.WouldRefuse)
	number("would_allow", w.WouldAllow)
	if w.Outage > 0 {
		all = append(all, slog.Duration("outage", w.Outage))
	}
	number("decided", w.Decided)
	text("fault", w.Fault)
	text("upstream", w.Upstream)
	text("model", w.Model)
	text("caller", w.Caller)
	if w.Err != nil {
		text("error", w.Err.Error())
	}
	return all
}
