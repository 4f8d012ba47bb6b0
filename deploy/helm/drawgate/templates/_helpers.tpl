{{/* The name of everything; what is not the server's has a suffix. */}}
{{- define "drawgate.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end -}}
{{- $name | trunc 45 | trimSuffix "-" -}}
{{- end }}

{{/* Labels that choose the pods of a component. */}}
{{- define "drawgate.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of everything that belongs to a component. */}}
{{- define "drawgate.labels" -}}
{{ include "drawgate.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "drawgate.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "drawgate.name" .) }}
{{- end }}

{{/* The image. */}}
{{- define "drawgate.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set, and there is no image that everybody could pull: \"make release\" writes one as an OCI layout to dist. Push it to a registry of your own, and name it: --set image.repository=REGISTRY/drawgate" -}}
{{- end -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{/* What is wrong with the values of a component, beyond what the schema knows. */}}
{{- define "drawgate.check" -}}
{{- $key := printf "%s.config" .component -}}
{{- if not (trim .values.config) -}}
{{- fail (printf "%s is empty: give it the text of a configuration file: --set-file %s=drawgate.yaml" $key $key) -}}
{{- end -}}
{{- $file := fromYaml .values.config -}}
{{- with $file.Error }}{{ fail (printf "%s is no configuration file: %s" $key .) }}{{ end -}}
{{- if regexMatch "^(rediss?|postgres|postgresql)://[^/?@]*:[^/?@]*[^/?].*@" (toString ($file.store | default "")) -}}
{{- fail (printf "%s: the store's URL has a password, and everybody who may read ConfigMaps could read it: put the URL into a Secret, as DRAWGATE_STORE (--set secret=NAME)" $key) -}}
{{- end -}}
{{- if and (not .root.Values.secret) (not (include "drawgate.shared" $file)) -}}
{{- fail (printf "%s: the pods need a store that they can share: name the Secret that has its URL as DRAWGATE_STORE (--set secret=NAME), or write store: redis://…, postgres://… or dynamodb://… into the file" $key) -}}
{{- end -}}
{{- $server := $file.server | default dict -}}
{{- if not (or .root.Values.secret .root.Values.insecure $server.tokens) -}}
{{- fail (printf "%s: everybody who reaches the pods could take and settle: name a Secret that has DRAWGATE_TAKE_TOKEN and DRAWGATE_ADMIN_TOKEN (--set secret=NAME), configure server.tokens, or set insecure=true if that is intended" $key) -}}
{{- end -}}
{{- if $server.tls -}}
{{- fail (printf "%s: server.tls is set in the file: use tls.secret instead, so that the probes know (client_ca is impossible: the kubelet has no certificate)" $key) -}}
{{- end -}}
{{- if eq .component "gateway" -}}
{{- if not ($file.gateway | default dict).upstreams -}}
{{- fail "gateway.config has no section gateway with upstreams" -}}
{{- end -}}
{{- else if and .root.Values.rls.enabled (not .root.Values.insecure) -}}
{{- fail "rls.enabled: Envoy's rate limit service has no access tokens: set insecure=true as well, and keep networkPolicy.enabled, which says who may reach it" -}}
{{- end -}}
{{- end }}

{{/* Whether a file names a store that pods can share. */}}
{{- define "drawgate.shared" -}}
{{- if regexMatch "^(redis|rediss|dynamodb|postgres|postgresql):" (toString (.store | default "")) }}yes{{ end -}}
{{- end }}

{{/* The hash of the settings of a file that a running program cannot change: only these restart the pods. */}}
{{- define "drawgate.fixed" -}}
{{- $file := omit . "enabled" "policies" "rules" "api_keys" "queue" -}}
{{- with $file.gateway }}{{ $file = merge (dict "gateway" (omit . "upstreams" "aliases" "keys" "tokens" "prices")) (omit $file "gateway") }}{{ end -}}
{{- with $file.envoy }}{{ $file = merge (dict "envoy" (omit . "configs" "merge" "windows")) (omit $file "envoy") }}{{ end -}}
{{- toJson $file | sha256sum -}}
{{- end }}

{{/* The whole seconds of a duration such as 1m30s, rounded up. */}}
{{- define "drawgate.seconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 -}}
{{- $ms := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h|d|w)" (replace "_" "" (toString .)) -1 -}}
{{- $ms = add $ms (mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- div (add $ms 999) 1000 -}}
{{- end }}

{{/* The ConfigMap, the Deployment and the PodDisruptionBudget of a component. */}}
{{- define "drawgate.component" -}}
{{- include "drawgate.check" . -}}
{{- $values := .root.Values -}}
{{- $file := fromYaml .values.config -}}
{{- $secrets := list -}}
{{- with $values.secret }}{{ $secrets = append $secrets . }}{{ end -}}
{{- with .values.secret }}{{ $secrets = append $secrets . }}{{ end -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "drawgate.labels" . | nindent 4 }}
data:
  drawgate.yaml: |2
    {{- .values.config | trimSuffix "\n" | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "drawgate.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels: {{- include "drawgate.selector" . | nindent 6 }}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels: {{- include "drawgate.labels" . | nindent 8 }}
      annotations:
        # A pod reloads its file when the ConfigMap changes. Only settings that it cannot change while it runs restart it.
        drawgate/fixed-settings: {{ include "drawgate.fixed" $file | trunc 16 | quote }}
    spec:
      serviceAccountName: {{ include "drawgate.serviceAccount" .root | quote }}
      automountServiceAccountToken: false
      # Otherwise each Service becomes variables, of which some would look like ours.
      enableServiceLinks: false
      {{- with $values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . | quote }}
        {{- end }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        seccompProfile: {type: RuntimeDefault}
      # The pause, what the program needs to finish, and time to spare (docs/operations.md).
      terminationGracePeriodSeconds: {{ add $values.preStopSeconds .drain }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "drawgate.selector" . | nindent 14 }}
      {{- with .values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: drawgate
          image: {{ include "drawgate.image" .root | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            {{- range .args }}
            - {{ . | quote }}
            {{- end }}
            {{- if $values.insecure }}
            - --insecure
            {{- end }}
          env:
            # Variables, not flags: "drawgate validate" and others see them too in the pod.
            - {name: DRAWGATE_CONFIG, value: /etc/drawgate/drawgate.yaml}
            - {name: DRAWGATE_ADMIN_LISTEN, value: ":7879"}
            {{- range $name, $address := .listen }}
            - {name: {{ $name }}, value: {{ $address | quote }}}
            {{- end }}
            {{- if not (include "drawgate.shared" $file) }}
            - name: DRAWGATE_STORE
              valueFrom: {secretKeyRef: {name: {{ $values.secret | quote }}, key: DRAWGATE_STORE}}
            {{- end }}
            {{- if $values.tls.secret }}
            - {name: DRAWGATE_TLS_CERT, value: /run/secrets/drawgate-tls/tls.crt}
            - {name: DRAWGATE_TLS_KEY, value: /run/secrets/drawgate-tls/tls.key}
            {{- end }}
          {{- with $secrets }}
          envFrom:
            {{- range . }}
            - secretRef: {name: {{ . | quote }}}
            {{- end }}
          {{- end }}
          ports:
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          # Restarted by /healthz, which does not ask the store; sent requests by /readyz, which does.
          livenessProbe:
            httpGet: {path: /healthz, port: {{ .probe }}, scheme: {{ ternary "HTTPS" "HTTP" (ne $values.tls.secret "") }}}
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: {{ .probe }}, scheme: {{ ternary "HTTPS" "HTTP" (ne $values.tls.secret "") }}}
            periodSeconds: 2
            timeoutSeconds: 3
            failureThreshold: 3
          lifecycle:
            preStop: {sleep: {seconds: {{ $values.preStopSeconds }}}}
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: config, mountPath: /etc/drawgate, readOnly: true}
            {{- if $secrets }}
            - {name: secrets, mountPath: /run/secrets/drawgate, readOnly: true}
            {{- end }}
            {{- if $values.tls.secret }}
            - {name: tls, mountPath: /run/secrets/drawgate-tls, readOnly: true}
            {{- end }}
            {{- if .envoyFiles }}
            - {name: envoy, mountPath: /etc/ratelimit, readOnly: true}
            {{- end }}
            {{- if eq .component "gateway" }}
            - {name: state, mountPath: /var/lib/drawgate}
            {{- end }}
      volumes:
        - name: config
          configMap: {name: {{ .name }}}
        {{- with $secrets }}
        - name: secrets
          projected:
            sources:
              {{- range . }}
              - secret: {name: {{ . | quote }}}
              {{- end }}
        {{- end }}
        {{- with $values.tls.secret }}
        - name: tls
          secret: {secretName: {{ . | quote }}}
        {{- end }}
        {{- with .envoyFiles }}
        - name: envoy
          configMap: {name: {{ . | quote }}}
        {{- end }}
        {{- if eq .component "gateway" }}
        - name: state
          {{- if .values.claim }}
          persistentVolumeClaim: {claimName: {{ .values.claim | quote }}}
          {{- else }}
          emptyDir: {}
          {{- end }}
        {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "drawgate.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "drawgate.selector" . | nindent 6 }}
{{- end }}

{{/* Who may reach the pods of a component. */}}
{{- define "drawgate.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "drawgate.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "drawgate.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  # A rule without "from" would admit everybody, so there is none for an empty list.
  ingress:
    {{- $open := .open }}
    {{- with .root.Values.networkPolicy.clients }}
    - ports:
        {{- range $open }}
        - {port: {{ . }}}
        {{- end }}
      from: {{- toYaml . | nindent 8 }}
    {{- end }}
    {{- with .root.Values.networkPolicy.monitoring }}
    - ports: [{port: admin}]
      from: {{- toYaml . | nindent 8 }}
    {{- end }}
{{- end }}

{{/* How the operator of Prometheus finds the pods of a component. */}}
{{- define "drawgate.serviceMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "drawgate.labels" . | nindent 4 }}
    {{- with .root.Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  jobLabel: app.kubernetes.io/name # the job is "drawgate", as the alerts expect
  selector:
    matchLabels: {{- include "drawgate.selector" . | nindent 6 }}
  endpoints:
    - port: admin
      {{- if .root.Values.tls.secret }}
      scheme: https
      tlsConfig:
        ca: {secret: {name: {{ .root.Values.tls.secret | quote }}, key: ca.crt}}
        serverName: {{ include "drawgate.name" .root }}.{{ .root.Release.Namespace }}.svc
      {{- end }}
      {{- with .root.Values.secret }}
      authorization:
        credentials: {name: {{ . | quote }}, key: DRAWGATE_READ_TOKEN}
      {{- end }}
{{- end }}
