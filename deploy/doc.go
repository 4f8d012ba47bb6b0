// Package deploy holds example configurations of the proxies that ask Drawgate, and alerts for
// Prometheus. Its tests run each of them for real, and every query of the dashboards in grafana, a
// module of its own. Another one is helm, with a chart for Kubernetes.
package deploy
