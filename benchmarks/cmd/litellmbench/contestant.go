package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
)

// Keys of the callers and of the upstream. They open nothing.
const (
	callerKey   = "sk-bench-b2f0c7d94e1a48c3a6d5f7e8091b3c4d"
	upstreamKey = "sk-upstream-0123456789"
)

// contestant is a proxy with its configuration.
type contestant struct {
	name       string
	path       string // that callers use
	health     string // answers 200 when it is ready
	tokensOnly bool   // it differs from another one in limits of tokens alone
	start      func(at place, l limits) (*exec.Cmd, error)
}

// place is where a replica runs.
type place struct {
	dir             string // its own
	addr            string // where it is to listen
	upstream, redis string
	replicas        int
}

var contestants = []contestant{
	{name: "drawgate", path: "/openai" + chat.Path, health: "/healthz", start: ours("")},
	{
		name: "drawgate-likely", path: "/openai" + chat.Path, health: "/healthz", tokensOnly: true,
		start: ours("estimate: likely"),
	},
	{name: "litellm-deployment", path: chat.Path, health: "/health/liveliness", start: litellm(false)},
	{name: "litellm-key", path: chat.Path, health: "/health/liveliness", start: litellm(true)},
}

// ours is drawgate gateway, as docs/gateway.md has it. estimate is a line of the upstream.
func ours(estimate string) func(place, limits) (*exec.Cmd, error) {
	return func(at place, l limits) (*exec.Cmd, error) {
		config := fmt.Sprintf(`store: redis://%s
instances: %d
policies:
  quota:
    limits:
      - {name: rpm, rolling: 1m, amount: %d, margin: 2s}
      - {name: tpm, unit: tokens, rolling: 1m, amount: %d, margin: 2s}
    wait: {up_to: 300s, queue: 1000}
gateway:
  max_wait: 300s
  upstreams:
    openai:
      url: http://%s
      api_key_env: UPSTREAM_KEY
      models: [{model: "*", policy: quota}]
      %s
  keys: [{name: bench, secret_env: CALLER_KEY}]
`, at.redis, at.replicas, l.rpm, l.tpm, at.upstream, estimate)
		if err := os.WriteFile(filepath.Join(at.dir, "drawgate.yaml"), []byte(config), 0o600); err != nil {
			return nil, err
		}
		program, err := filepath.Abs(filepath.Join(*bin, "drawgate"))
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(program, "gateway", "--config", "drawgate.yaml", "--listen", at.addr, "--admin", "off") //nolint:gosec,noctx // ours
		cmd.Env = append(os.Environ(), "UPSTREAM_KEY="+upstreamKey, "CALLER_KEY="+callerKey)
		return cmd, nil
	}
}

// litellm is LiteLLM's proxy, with the limits of the model's deployment or of the caller's key. By
// its documentation both need Redis to be shared between processes, and a deployment's are enforced
// by a pre-call check only.
func litellm(ofKey bool) func(place, limits) (*exec.Cmd, error) {
	return func(at place, l limits) (*exec.Cmd, error) {
		host, port, err := net.SplitHostPort(at.redis)
		if err != nil {
			return nil, err
		}
		ofModel, check, auth := "", "", ""
		if ofKey {
			auth = "\n  custom_auth: bench_auth.user_api_key_auth"
		} else {
			ofModel = fmt.Sprintf("\n      rpm: %d\n      tpm: %d", l.rpm, l.tpm)
			check = "\n  optional_pre_call_checks: [enforce_model_rate_limits]"
		}
		config := fmt.Sprintf(`model_list:
  - model_name: %[1]s
    litellm_params:
      model: openai/%[1]s
      api_base: http://%[2]s/v1
      api_key: %[3]s%[4]s
litellm_settings:
  num_retries: 0
  request_timeout: 60
  cache: true
  cache_params: {type: redis, host: %[5]s, port: %[6]s, supported_call_types: []}
router_settings:
  num_retries: 0
  disable_cooldowns: true
  redis_host: %[5]s
  redis_port: %[6]s%[7]s
general_settings:
  master_key: %[8]s%[9]s
`, chat.Model, at.upstream, upstreamKey, ofModel, host, port, check, callerKey, auth)
		limiter := fmt.Sprintf(`from litellm.proxy._types import UserAPIKeyAuth


async def user_api_key_auth(request, api_key: str) -> UserAPIKeyAuth:
    if api_key != %q:
        raise Exception("this key is not known")
    return UserAPIKeyAuth(api_key=api_key, rpm_limit=%d, tpm_limit=%d)
`, callerKey, l.rpm, l.tpm)
		for name, text := range map[string]string{"config.yaml": config, "bench_auth.py": limiter} {
			if err := os.WriteFile(filepath.Join(at.dir, name), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		_, port, err = net.SplitHostPort(at.addr)
		if err != nil {
			return nil, err
		}
		program, err := filepath.Abs(filepath.Join(*dir, "venv", "bin", "litellm"))
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(program, //nolint:gosec,noctx // installed for this
			"--config", "config.yaml", "--host", "127.0.0.1", "--port", port, "--num_workers", "1", "--telemetry",
			"False")
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + at.dir, "LITELLM_LOCAL_MODEL_COST_MAP=True",
			"LITELLM_LOG=ERROR", "LITELLM_MODE=PRODUCTION",
		}
		return cmd, nil
	}
}
