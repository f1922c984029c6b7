{{- define "forebay.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "forebay.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "forebay.labels" -}}
{{ include "forebay.selector" . }}
app.kubernetes.io/version: {{ regexReplaceAll "[^A-Za-z0-9._-]" (.Values.image.tag | default .Chart.AppVersion) "_" | trunc 63 | trimAll "._-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* Whether pods are added and taken away: not where they are the producers'. */}}
{{- define "forebay.autoscaled" -}}
{{- if and (eq .Values.mode "gateway") .Values.autoscaling.enabled }}true{{ end }}
{{- end }}

{{- /* The bootstrap port and one for each broker: what pods listen on and the Service has. */}}
{{- define "forebay.ports" -}}
bootstrap: {{ int .Values.port }}
{{- range .Values.brokers.ids }}
{{- $port := add (int $.Values.port) 1 (int .) }}
{{- if or (eq $port (int $.Values.adminPort | int64)) (gt $port 65535) }}
{{- fail (printf "brokers.ids: broker %d cannot be on port %d, which is port + 1 + its id" (int .) $port) }}
{{- end }}
broker-{{ int . }}: {{ $port }}
{{- end }}
{{- end }}

{{- /* `settings` by their whole names, without those that are null: {linger: {ms: 5}}, which --set settings.linger.ms=5
       makes, is linger.ms, as in Forebay's own file. Only the settings that $map is about are maps themselves. */}}
{{- define "forebay.given" -}}
{{- $given := dict }}
{{- $_ := include "forebay.flatten" (list .Values.settings "" $given) }}
{{- toYaml $given }}
{{- end }}

{{- define "forebay.flatten" -}}
{{- $prefix := index . 1 }}
{{- $given := index . 2 }}
{{- range $key, $value := index . 0 }}
{{- $name := print $prefix $key }}
{{- $map := regexMatch "^((listener\\.name\\..+\\.)?(advertised\\.)?node\\.ports|listener\\.security\\.protocol\\.map|client\\.racks)$" $name }}
{{- if and (kindIs "map" $value) (not $map) }}
{{- $_ := include "forebay.flatten" (list $value (print $name ".") $given) }}
{{- else if not (kindIs "invalid" $value) }}
{{- if hasKey $given $name }}{{ fail (printf "settings: %s is set twice" $name) }}{{ end }}
{{- $_ := set $given $name $value }}
{{- end }}
{{- end }}
{{- end }}

{{- /* All settings but those that the chart gives by itself. */}}
{{- define "forebay.settings" -}}
{{- $given := include "forebay.given" . | fromYaml }}
{{- $any := .Values.bindAddress | default "0.0.0.0" }}
{{- $protocol := .Values.protocol | default "PLAINTEXT" }}
{{- if contains ":" $any }}{{ $any = printf "[%s]" $any }}{{ end }}
{{- $own := dict
  "bootstrap.servers" .Values.bootstrapServers
  "workers" (int .Values.workers)
  "admin" (printf "%s:%d" $any (int .Values.adminPort))
  "admin.unprotected" true
}}
{{- $defaults := dict "log.format" "json" "shutdown.timeout.ms" 30000 "admin.socket" "/run/forebay/admin.sock" }}
{{- if include "forebay.autoscaled" . }}{{ $_ := set $defaults "connections.max.age.ms" 600000 }}{{ end }}
{{- if eq .Values.mode "sidecar" }}
{{- /* For the pod only: the address that its producer connected to is the one it is told for every broker. */}}
{{- $_ := set $own "listen" (printf "127.0.0.1:%d" (int .Values.port)) }}
{{- else }}
{{- $_ := set $own "advertised.host" (.Values.advertisedHost | default (printf "%s.%s.svc" (include "forebay.name" .) .Release.Namespace)) }}
{{- $address := printf "%s:%d" $any (int .Values.port) }}
{{- if eq $protocol "PLAINTEXT" }}
{{- $_ := set $own "listen" $address }}
{{- else }}
{{- $_ := set $own "listeners" (list (printf "%s://%s" $protocol $address)) }}
{{- end }}
{{- /* By name, since clients would wait at a port that the Service lacks; and with logins at brokers a new pod is told of
       those by clients' answers only, while who comes may know no other port than a broker's. */}}
{{- $ports := dict }}
{{- range .Values.brokers.ids }}{{ $_ := set $ports (int . | toString) (add (int $.Values.port) 1 (int .)) }}{{ end }}
{{- $named := eq $protocol "PLAINTEXT" | ternary "node.ports" (printf "listener.name.%s.node.ports" (lower $protocol)) }}
{{- $_ := set $own $named $ports }}
{{- $_ := set $own (printf "%s.only" $named) true }}
{{- end }}
{{- range $name, $_ := $given }}
{{- if and (eq $.Values.mode "gateway") (regexMatch "^(listener\\.name\\..+\\.)?node\\.ports(\\.only)?$" $name) }}
{{- fail (printf "settings: %s cannot be set: a broker is where the Service has it, on port + 1 + its id" $name) }}
{{- end }}
{{- end }}
{{- $variables := list "FOREBAY_CONFIG" }}
{{- range $name := concat (keys $own) (list "listen" "listeners") | uniq | sortAlpha }}
{{- if hasKey $given $name }}{{ fail (printf "settings: %s is the chart's own to set: see its values" $name) }}{{ end }}
{{- $variables = printf "FOREBAY_%s" (replace "." "_" $name | upper) | append $variables }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if has .name $variables }}{{ fail (printf "extraEnv: %s is the chart's own to set: see its values" .name) }}{{ end }}
{{- end }}
{{- if and (eq .Values.mode "gateway") (index $given "advertised.address") }}
{{- if .Values.advertisedHost }}{{ fail "advertisedHost: cannot be set together with advertised.address" }}{{ end }}
{{- $_ := unset $own "advertised.host" }}
{{- end }}
{{- if and (index $given "journal.dir") (not .Values.journalVolume) }}
{{- fail "settings: journal.dir needs a journalVolume, as nothing else of a pod can be written; a journal.topic needs none" }}
{{- else if and .Values.journalVolume (not (index $given "journal.dir")) }}
{{- fail "journalVolume: settings have no journal.dir, which is where it would be mounted" }}
{{- end }}
{{- with include "forebay.journalBytes" . }}{{ $_ := set $defaults "journal.retention.bytes" (int64 .) }}{{ end }}
{{- /* Not merge: it would add to a map that is given, and take what is empty for not given. */}}
{{- range $some := list $defaults $given }}
{{- range $name, $value := $some }}{{ $_ := set $own $name $value }}{{ end }}
{{- end }}
{{- toYaml $own }}
{{- end }}

{{- /* What closed files of a journal may take of an emptyDir with a limit, above which the kubelet kills the pod at once: nine
       tenths, since it counts blocks and folders, too, of what open ones leave. A worker has one, and what it is compressed to. */}}
{{- define "forebay.journalBytes" -}}
{{- $given := include "forebay.given" . | fromYaml }}
{{- $limit := dig "emptyDir" "sizeLimit" "" .Values.journalVolume }}
{{- if $limit }}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- if kindIs "string" $limit }}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?([kMGT]|[KMGT]i)?$" $limit) }}
{{- fail (printf "journalVolume: sizeLimit %s is not a size like 2Gi or 500M" $limit) }}
{{- end }}
{{- $limit = mulf (regexFind "^[0-9.]+" $limit | float64) (regexFind "[A-Za-z]*$" $limit | get $units) }}
{{- end }}
{{- $open := get $given "journal.segment.bytes" | default 67108864 | int64 | mul 2 (int .Values.workers) }}
{{- $room := sub (int64 $limit) $open }}
{{- if lt $room 1 }}
{{- fail (printf "journalVolume: sizeLimit must be more than %d bytes, which open files may take (workers x 2 x journal.segment.bytes)" $open) }}
{{- end }}
{{- if hasKey $given "journal.retention.bytes" }}
{{- $kept := get $given "journal.retention.bytes" | int64 }}
{{- if or (lt $kept 0) (gt $kept $room) }}
{{- fail (printf "settings: journal.retention.bytes must be from 0 to %d, or pods are evicted: what journalVolume's sizeLimit holds beside open files (workers x 2 x journal.segment.bytes)" $room) }}
{{- end }}
{{- end }}
{{- div (mul $room 9) 10 }}
{{- end }}
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

{{- /* MiB of one worker: the process, its two memories, responses that name brokers and Metadata's that clients do not take,
       a request that is decompressed and its records, rows of the journal, and a quarter more. */}}
{{- define "forebay.workerMiB" -}}
{{- $settings := include "forebay.settings" . | fromYaml }}
{{- $buffer := get $settings "buffer.memory" | default 33554432 | int64 }}
{{- $queued := get $settings "queued.max.request.bytes" | default 67108864 | int64 }}
{{- $decompressed := get $settings "max.decompressed.bytes" | default 67108864 | int64 }}
{{- $rows := 0 }}
{{- if or (index $settings "journal.dir") (index $settings "journal.topic") }}
{{- $rows = get $settings "journal.queue.bytes" | default 16777216 | int64 }}
{{- end }}
{{- div (mul (add 56 32 32 (div (add $buffer $queued (mul 2 $decompressed) $rows) 1048576)) 5) 4 }}
{{- end }}

{{- define "forebay.resources" -}}
{{- $queued := include "forebay.given" . | fromYaml | dig "queued.max.request.bytes" 0 | int64 }}
{{- if and (lt $queued 0) (not (dig "limits" "memory" "" .Values.resources)) }}
{{- fail "settings: queued.max.request.bytes = -1 sets no bound to a pod's memory: resources must have a memory limit then" }}
{{- end }}
{{- if .Values.resources }}
{{- toYaml .Values.resources }}
{{- else }}
{{- $history := include "forebay.given" . | fromYaml | dig "admin.history.bytes" 0 | default 16777216 | int64 }}
{{- $workers := mul (int .Values.workers) (include "forebay.workerMiB" . | int) }}
{{- $memory := printf "%dMi" (add $workers (div (mul $history 5) 4194304)) -}}
requests:
  cpu: {{ if include "forebay.autoscaled" . }}{{ .Values.workers }}{{ else }}{{ mul (int .Values.workers) 250 }}m{{ end }}
  memory: {{ $memory }}
limits:
  memory: {{ $memory }}
{{- end }}
{{- end }}

{{- /* What a probe asks: (list . path). With a certificate the admin endpoint speaks TLS only. */}}
{{- define "forebay.probe" -}}
path: {{ index . 1 }}
port: admin
{{- if include "forebay.given" (index . 0) | fromYaml | dig "admin.ssl.keystore.location" "" }}
scheme: HTTPS
{{- end }}
{{- end }}

{{- /* What a gateway's pod and a sidecar have in common: how Forebay is started, asked, and kept from what it does not need. */}}
{{- define "forebay.container" -}}
name: forebay
{{- if .Values.image.digest }}
image: {{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run, --config, /etc/forebay/forebay.toml]
env:
  # The image has 127.0.0.1 here, which wins over the file.
  - name: FOREBAY_ADMIN
    value: {{ include "forebay.settings" . | fromYaml | dig "admin" "" | quote }}
  # For commands in the container, which find the socket by it: kubectl exec … -- forebay avoid 3
  - name: FOREBAY_CONFIG
    value: /etc/forebay/forebay.toml
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if eq .Values.mode "sidecar" }}
# The producer is started once a broker has answered. A cluster that is away holds the pod back; started anew Forebay
# would find it no sooner, so that is only done every quarter of an hour: after ten minutes the kubelet's back-off, which
# would hold it back for five more, begins anew.
startupProbe:
  httpGet:
    {{- include "forebay.probe" (list . "/readyz") | nindent 4 }}
  periodSeconds: 1
  failureThreshold: 900
{{- else }}
# On a node that is busy, a start may take longer than whoever runs already may be silent.
startupProbe:
  httpGet:
    {{- include "forebay.probe" (list . "/healthz") | nindent 4 }}
  periodSeconds: 1
  failureThreshold: 120
{{- end }}
readinessProbe:
  httpGet:
    {{- include "forebay.probe" (list . "/readyz") | nindent 4 }}
  periodSeconds: 5
livenessProbe:
  httpGet:
    {{- include "forebay.probe" (list . "/healthz") | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 3
  # /healthz fails once a worker has been silent for ten seconds; after thirty Forebay kills it itself, and the others
  # serve on.
  failureThreshold: 4
securityContext:
  runAsUser: 10001
  runAsGroup: 10001
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
resources:
  {{- include "forebay.resources" . | nindent 2 }}
volumeMounts:
  - name: forebay
    mountPath: /etc/forebay
    readOnly: true
  - name: forebay-run
    mountPath: /run/forebay
  {{- if .Values.files }}
  - name: forebay-files
    mountPath: /etc/kafka
    readOnly: true
  {{- end }}
  {{- with include "forebay.given" . | fromYaml | dig "journal.dir" "" }}
  - name: forebay-journal
    mountPath: {{ . | quote }}
  {{- end }}
{{- end }}

{{- /* Which pods get a sidecar. Not a default of values.yaml: what is given there would be added to it. */}}
{{- define "forebay.injected" -}}
{{- .Values.sidecar.selector | default (dict "matchLabels" (dict "forebay" "sidecar")) | toYaml }}
{{- end }}

{{- define "forebay.volumes" -}}
- name: forebay
  configMap:
    name: {{ include "forebay.name" . }}
# For admin.socket.
- name: forebay-run
  emptyDir:
    sizeLimit: 1Mi
{{- with .Values.files }}
# A folder, no subPath: of files mounted by that no change is seen.
- name: forebay-files
  projected:
    # Forebay refuses secrets that others can read, which is what the default, 0644, allows.
    defaultMode: 0400
    sources:
      {{- toYaml . | nindent 6 }}
{{- end }}
{{- with .Values.journalVolume }}
- name: forebay-journal
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A value as CEL has it. Lists and maps there are of one type, but for what is dynamic. */}}
{{- define "forebay.cel" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $name := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ $name | toRawJson }}: dyn({{ include "forebay.cel" (get $ $name) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}dyn({{ include "forebay.cel" $each }}){{ end }}]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ printf "%d" (int64 .) }}
{{- else -}}
{{ toRawJson . }}
{{- end -}}
{{- end }}
