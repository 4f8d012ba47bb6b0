package fromlitellm

import "strings"

const (
	logging = "calls are not logged to other services: see docs/metrics.md and docs/audit.md"
	caching = "answers are kept by model here, for calls that are the same byte for byte: models: [{…, cache: {ttl: 10m}}]"
	noTable = "keys and teams are in the file, not in a database"
	noPage  = "there is no page to administer keys, teams and models: they are in the file"
	onError = "a fallback takes over when the quota is exhausted, or the provider refuses or is overloaded, not by the error"
	ofKeys  = "new keys are made with drawgate key new, and written into the file"
	headers = "what is passed on is fixed: see docs/gateway.md"
)

// settingReasons says why settings of litellm_settings are left out; "" if that changes nothing.
var settingReasons = reasons(map[string]string{ //nolint:gosec // names of settings, no secrets
	"": "set_verbose json_logs suppress_debug_info turn_off_message_logging telemetry " +
		"redact_user_api_key_info redact_messages_in_exceptions prometheus_initialize_budget_metrics",
	"certificates are always verified": "ssl_verify",
	passed:                             "drop_params modify_params add_function_to_prompt",
	logging: "callbacks success_callback failure_callback service_callbacks audit_log_callbacks " +
		"default_team_settings",
	caching: "cache cache_params enable_caching_on_provider_specific_optional_params",
	onError: "context_window_fallbacks content_policy_fallbacks",
	"fallbacks belong to a model here: models: [{…, fallbacks: […]}]": "default_fallbacks",
	"there are no users here, but keys and teams": "default_internal_user_params " +
		"max_internal_user_budget internal_user_budget_duration",
	"there are no users of keys here: a rule can count by user": "max_user_budget",
	"there are no end users here":                               "max_end_user_budget",
	ofKeys:                                                      "default_key_generate_params upperbound_key_generate_params key_generation_settings",
	"teams are in the file":                                     "default_team_params",
	"periods of the calendar begin at midnight":                 "budget_reset_time",
	cooldown: "allowed_fails cooldown_time",
	headers:  "forward_traceparent_to_llm_provider return_response_headers",
	noPage:   "public_model_groups",
	"programs of your own in Python are not called":                                       "custom_provider_map",
	"a limit keeps a share for priorities here: keep: {7: 10%}, and keys have a priority": "priority_reservation",
	"there are no tags here: rules choose by keys, teams and models":                      "tag_budget_config",
	"MCP servers are not proxied":                                                         "mcp_aliases mcp_semantic_tool_filter",
	"there are no guardrails here":                                                        "guardrails",
})

// routerReasons says the same of router_settings.
var routerReasons = reasons(map[string]string{
	"": "set_verbose debug_level client_ttl",
	"limits always hold here, and a call that has no room waits": "enable_pre_call_checks " +
		"optional_pre_call_checks",
	"an alias stands for its accounts by weight": "routing_strategy_args routing_groups",
	cooldown:                                "allowed_fails allowed_fails_policy cooldown_time disable_cooldowns",
	"retries wait as the provider says":     "retry_after",
	"an upstream has one number of retries": "retry_policy model_group_retry_policy",
	paramReasons["stream_timeout"]:          "stream_timeout",
	"a model can have 8":                    "max_fallbacks",
	settingReasons["default_fallbacks"]:     "default_fallbacks",
	onError:                                 "context_window_fallbacks content_policy_fallbacks",
	settingReasons["tag_budget_config"]:     "enable_tag_filtering tag_filtering_match_any",
	"write a policy with the budget, and a rule that matches the provider: attrs: {provider: openai}": "provider_budget_config",
	caching: "cache_responses cache_kwargs caching_groups",
	"who waits is served in the order of priority and arrival":   "polling_interval",
	"keys have a priority, and a caller can lower it for a call": "default_priority",
	passed: "default_litellm_params fallback_on_unsupported_params",
	"write a limit with concurrency into the model's policy": "default_max_parallel_requests",
	"see telemetry in docs/configuration.md":                 "alerting_config",
})

// generalReasons says the same of general_settings.
var generalReasons = reasons(map[string]string{ //nolint:gosec // names of settings, no secrets
	"": "database_url database_connection_pool_limit database_connection_timeout proxy_batch_write_at " +
		"disable_spend_logs disable_error_logs store_prompts_in_spend_logs health_check_interval " +
		"background_health_checks health_check_details allow_requests_on_db_unavailable " +
		"maximum_spend_logs_retention_period disable_master_key_return",
	"models are in the file": "store_model_in_db infer_model_from_keys",
	noTable:                  "supported_db_objects default_team_disabled",
	"see telemetry in docs/configuration.md: a webhook": "alerting alerting_threshold alerting_args " +
		"alert_types",
	"programs of your own in Python are not called: keys are in the file": "custom_auth",
	ofKeys:                                   "custom_key_generate",
	"callers show keys, not JSON Web Tokens": "enable_jwt_auth litellm_jwtauth",
	"callers show keys":                      "enable_oauth2_auth",
	"a key lists its paths: paths":           "allowed_routes",
	"each call needs a key":                  "public_routes",
	noPage:                                   "admin_only_routes ui_access_mode",
	"write a policy with concurrency, and a rule for all keys":           "max_parallel_requests",
	"write a policy with concurrency, and a rule with the key '\"all\"'": "global_max_parallel_requests",
	"see max_body of the gateway":                                        "max_request_size_mb",
	"answers have no largest size":                                       "max_response_size_mb",
	"callers name the model":                                             "completion_model",
	"secrets come from variables or files": "key_management_system key_management_settings " +
		"use_google_kms use_azure_key_vault",
	"calls need no user":                  "enforce_user_param",
	"callers' tags have no meaning here":  "reject_clientside_metadata_tags",
	"a key lists its networks: addresses": "allowed_ips",
	"see server.proxies":                  "use_x_forwarded_for",
	headers:                               "forward_client_headers_to_llm_api forward_openai_org_id",
	"paths pass to the upstream that lists them in others":                "pass_through_endpoints",
	"router_settings has the Redis that is converted: set DRAWGATE_STORE": "coordination_redis",
	"callers' headers do not name a user":                                 "user_header_name user_header_mappings",
	"usage is always asked for, and left out if the caller did not ask":   "always_include_stream_usage",
	"the fallback of each limit decides":                                  "fail_closed_rate_limit_enforcement",
	"each caller needs a key":                                             "dangerously_permit_weak_or_unset_master_key",
})

// reasons returns why each setting is left out, given the settings of each reason, separated by
// blanks.
func reasons(settings map[string]string) map[string]string {
	all := map[string]string{}
	for why, names := range settings {
		for name := range strings.FieldsSeq(names) {
			all[name] = why
		}
	}
	return all
}
