{{- define "forebay.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "forebay.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "forebay.labels" -}}
{{ include "forebay.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The bootstrap port and one for each broker: what pods listen on and the Service has. */}}
{{- define "forebay.ports" -}}
bootstrap: {{ int .Values.port }}
{{- range .Values.brokers.ids }}
broker-{{ int . }}: {{ add (int $.Values.port) 1 (int .) }}
{{- end }}
{{- end }}

{{- /* All settings but those that the chart gives by itself. */}}
{{- define "forebay.settings" -}}
{{- $own := dict
  "bootstrap.servers" .Values.bootstrapServers
  "listen" (printf "0.0.0.0:%d" (int .Values.port))
  "advertised.host" (.Values.advertisedHost | default (printf "%s.%s.svc" (include "forebay.name" .) .Release.Namespace))
  "workers" (int .Values.workers)
  "admin" (printf "0.0.0.0:%d" (int .Values.adminPort))
  "admin.unprotected" true
}}
{{- range $name := keys $own | sortAlpha }}
{{- if hasKey $.Values.settings $name }}{{ fail (printf "settings: %s is the chart's own to set: see its values" $name) }}{{ end }}
{{- end }}
{{- $defaults := dict "log.format" "json" "shutdown.timeout.ms" 30000 }}
{{- if .Values.autoscaling.enabled }}{{ $_ := set $defaults "connections.max.age.ms" 600000 }}{{ end }}
{{- toYaml (merge $own .Values.settings $defaults) }}
{{- end }}

{{- /* A value as TOML has it. Numbers of a values file are floats to Helm, and would get a point or an exponent. */}}
{{- define "forebay.toml" -}}
{{- if kindIs "map" . -}}
{ {{ range $index, $name := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ $name | toRawJson }} = {{ include "forebay.toml" (get $ $name) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}{{ include "forebay.toml" $each }}{{ end }}]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ printf "%d" (int64 .) }}
{{- else -}}
{{ toRawJson . }}
{{- end -}}
{{- end }}

{{- /* MiB of one worker: the process, its two memories, responses that name brokers, and a quarter more. */}}
{{- define "forebay.workerMiB" -}}
{{- $settings := include "forebay.settings" . | fromYaml }}
{{- $buffer := get $settings "buffer.memory" | default 33554432 | int64 }}
{{- $queued := get $settings "queued.max.request.bytes" | default 67108864 | int64 }}
{{- div (mul (add 56 16 (div (add $buffer $queued) 1048576)) 5) 4 }}
{{- end }}

{{- define "forebay.resources" -}}
{{- if .Values.resources }}
{{- toYaml .Values.resources }}
{{- else }}
{{- $memory := printf "%dMi" (mul (int .Values.workers) (include "forebay.workerMiB" . | int)) -}}
requests:
  cpu: {{ if .Values.autoscaling.enabled }}{{ .Values.workers }}{{ else }}{{ mul (int .Values.workers) 250 }}m{{ end }}
  memory: {{ $memory }}
limits:
  memory: {{ $memory }}
{{- end }}
{{- end }}
