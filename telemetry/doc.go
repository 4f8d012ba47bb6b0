// Package telemetry shows what limiters do: as Prometheus metrics, in a log, and by signed
// webhooks.
//
// Each part gets its data from a [drawgate.Observer]; a limiter without one pays nothing:
//
//   - [Metrics] counts every decision. Its names, labels and their bounds are in docs/metrics.md.
//   - [Warner] reports the few events that operators should know about: a limit that is nearly
//     used up, refusals (one of many), a store that is unavailable. It passes them to sinks: [Log]
//     writes them with log/slog, [Webhook] posts them.
//   - [Join] makes one observer of several.
//
// [Metrics.Outbound] and [Warner.Outbound] do the same for calls to upstreams: see package
// outbound.
//
// Nothing here does I/O, waits or allocates while a decision is made. Keys are shown only as hashes
// (see [Hasher]), unless [Options.RawIdentifiers] is set.
package telemetry
