// Package telemetry shows what limiters do: as Prometheus metrics, in a log, and as signed web
// calls.
//
// All of it is fed by a [drawgate.Observer] and costs nothing where it is left out:
//
//   - [Metrics] counts every decision. Its names, labels and their bounds are in docs/metrics.md.
//   - [Warner] picks out the few things that somebody should know: a limit that is nearly used up,
//     refusals (one of many), a store that is away. It hands them to sinks: [Log] writes them with
//     log/slog, [Webhook] posts them.
//   - [Join] makes one observer of several.
//
// Nothing here does I/O, waits or allocates on the path of a decision. Keys are never shown unless
// [Options.RawIdentifiers] says so: [Hasher] hides them.
package telemetry
