-- Asks Drawgate about a request, with HAProxy's own HTTP client (2.5 or newer). Sets txn.drawgate
-- to "pass", "refused", "failed" or "unavailable", and for the headers of the answer
-- txn.drawgate_limit, txn.drawgate_remaining, txn.drawgate_reset and txn.drawgate_retry_after.
-- txn.drawgate_status is the status of a refusal: "429", "503" if the store is unavailable and the
-- fallback refuses, or "422" if programs do not agree which path the request asks for.
-- "unavailable" means that there was no answer (0, 502 and 504 are HAProxy's own), or a 503 without
-- a decision; "failed" is any other answer, which a client may have caused.
local url = "http://127.0.0.1:7878/auth"

local function first(headers, name)
	local values = headers and headers[name]
	return values and values[0] or values and values[1] or ""
end

core.register_action("drawgate", { "http-req" }, function(txn)
	local asked = core.httpclient()
	local answer = asked:get({
		url = url,
		timeout = 1000,
		headers = {
			["x-forwarded-for"] = { txn.sf:src() },
			["x-forwarded-method"] = { txn.sf:method() },
			["x-forwarded-host"] = { txn.sf:req_fhdr("host") or "" },
			["x-forwarded-uri"] = { txn.sf:url() },
		},
	})
	local headers = answer and answer.headers
	local status = first(headers, "x-ratelimit-status") -- every refusal has one, and no other answer
	local verdict = "unavailable"
	if answer and answer.status == 200 then
		verdict = "pass"
	elseif status ~= "" then
		verdict = "refused"
	elseif answer and answer.status >= 200 and answer.status <= 500 then
		verdict = "failed"
	end
	txn:set_var("txn.drawgate", verdict)
	txn:set_var("txn.drawgate_status", status)
	txn:set_var("txn.drawgate_limit", first(headers, "x-ratelimit-limit"))
	txn:set_var("txn.drawgate_remaining", first(headers, "x-ratelimit-remaining"))
	txn:set_var("txn.drawgate_reset", first(headers, "x-ratelimit-reset"))
	txn:set_var("txn.drawgate_retry_after", first(headers, "retry-after"))
end, 0)
