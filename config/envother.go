package config

import "strings"

// otherVariables are those of envoyproxy/ratelimit that change what it decides or where it listens,
// and what takes their place here; "" if nothing does. Names that many programs have, such as PORT,
// LOG_LEVEL or REDIS_URL, are only noticed beside one that others do not have.
var otherVariables = []struct {
	name, instead string
	common        bool
}{
	{name: "RUNTIME_ROOT", instead: "envoy.configs"},
	{name: "RUNTIME_SUBDIRECTORY", instead: "envoy.configs"},
	{name: "RUNTIME_APPDIRECTORY", instead: "envoy.configs"},
	{name: "RUNTIME_IGNOREDOTFILES"},
	{name: "RUNTIME_WATCH_ROOT"},
	{name: "MERGE_DOMAIN_CONFIG", instead: "envoy.merge"},
	{name: "SHADOW_MODE", instead: "envoy.shadow"},
	{name: "GLOBAL_SHADOW_MODE", instead: "envoy.shadow"},
	{name: "QUOTA_MODE", instead: "quota_mode in the files"},
	{name: "REDIS_URL", instead: "store", common: true},
	{name: "REDIS_TYPE", instead: "store: redis+cluster://… or redis+sentinel://…", common: true},
	{name: "REDIS_SOCKET_TYPE", instead: "store"},
	{name: "REDIS_AUTH", instead: "store, with user and password in its URL", common: true},
	{name: "REDIS_TLS", instead: "store: rediss://…", common: true},
	{name: "REDIS_POOL_SIZE", common: true},
	{name: "REDIS_TIMEOUT", instead: "store_timeout", common: true},
	{name: "REDIS_PERSECOND"},
	{name: "REDIS_PERSECOND_URL"},
	{name: "BACKEND_TYPE", instead: "store", common: true},
	{name: "MEMCACHE_HOST_PORT", instead: "store"},
	{name: "CACHE_KEY_PREFIX", instead: "prefix", common: true},
	{name: "EXPIRATION_JITTER_MAX_SECONDS"},
	{name: "LOCAL_CACHE_SIZE_IN_BYTES"},
	{name: "NEAR_LIMIT_RATIO"},
	{name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"},
	{name: "LIMIT_RESPONSE_HEADERS_ENABLED", instead: "envoy.headers: legacy"},
	{name: "LIMIT_LIMIT_HEADER", instead: "envoy.limit_header"},
	{name: "LIMIT_REMAINING_HEADER", instead: "envoy.remaining_header"},
	{name: "LIMIT_RESET_HEADER", instead: "envoy.reset_header"},
	{name: "RESPONSE_DYNAMIC_METADATA", instead: "envoy.metadata"},
	{name: "CONFIG_TYPE", common: true},
	{name: "CONFIG_GRPC_XDS_SERVER_URL"},
	{name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"},
	{name: "GRPC_UDS", instead: "server.grpc: host:port"},
	{name: "GRPC_HOST", instead: "server.grpc", common: true},
	{name: "GRPC_PORT", instead: "server.grpc", common: true},
	{name: "GRPC_SERVER_USE_TLS", instead: "server.tls"},
	{name: "DEBUG_PORT", instead: "server.admin", common: true},
	{name: "USE_STATSD", instead: "metrics of Prometheus at /metrics"},
	{name: "STATSD_HOST", instead: "metrics of Prometheus at /metrics", common: true},
	{name: "STATSD_PORT", instead: "metrics of Prometheus at /metrics", common: true},
}

// otherServer warns of variables of envoyproxy/ratelimit, which have no effect: whoever comes from
// it would believe that they do.
func (e *environment) otherServer() {
	var found []string
	certain := false
	for _, v := range otherVariables {
		if e.get(v.name) == "" {
			continue
		}
		certain = certain || !v.common
		text := v.name
		if v.instead != "" {
			text += " (here: " + v.instead + ")"
		}
		found = append(found, text)
	}
	if certain {
		e.warnings = append(e.warnings, Problem{
			File:    "environment",
			Message: "variables of envoyproxy/ratelimit have no effect: " + strings.Join(found, ", "),
			Hint:    "write them as settings in the file: see docs/envoy.md",
		})
	}
}
