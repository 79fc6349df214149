{{- define "progressor.name" -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The names by which clients may address the engine: those of the service, and .Values.hosts. */}}
{{- define "progressor.hosts" -}}
{{- $service := include "progressor.name" . -}}
{{- $qualified := printf "%s.%s" $service .Release.Namespace -}}
{{- $all := list $service $qualified (printf "%s.svc" $qualified) (printf "%s.svc.cluster.local" $qualified) -}}
{{ concat $all .Values.hosts | join "," }}
{{- end }}

{{/* The scheme of the API. */}}
{{- define "progressor.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne .Values.tls.existingSecret "") }}
{{- end }}

{{/* The port and the scheme of the probes. */}}
{{- define "progressor.probe" -}}
{{- if .Values.opsPort -}}
port: ops, scheme: HTTP
{{- else -}}
port: http, scheme: {{ include "progressor.scheme" . }}
{{- end -}}
{{- end }}

{{- define "progressor.image" -}}
{{- with .Values.image -}}
{{ printf "%s%s" .repository (.digest | empty | ternary (printf ":%s" (.tag | default $.Chart.AppVersion)) (printf "@%s" .digest)) | quote }}
{{- end -}}
{{- end }}

{{- define "progressor.selector" -}}
app.kubernetes.io/name: progressor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "progressor.labels" -}}
{{ include "progressor.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Fails with settings of auth.oidc with which the engine does not start. */}}
{{- define "progressor.checkIssuers" -}}
{{- $oidc := .Values.auth.oidc -}}
{{- if and (or $oidc.issuer $oidc.issuers) (eq .Values.auth.mode "none") -}}
{{- fail "auth.oidc: is not used with auth.mode none" -}}
{{- else if and $oidc.issuers (or $oidc.issuer $oidc.audience) -}}
{{- fail "auth.oidc.issuers: cannot be used with auth.oidc.issuer or auth.oidc.audience: set them in its elements" -}}
{{- else if and $oidc.issuer (not $oidc.audience) -}}
{{- fail "auth.oidc.audience: is required with auth.oidc.issuer" -}}
{{- else if and $oidc.audience (not (or $oidc.issuer $oidc.issuers)) -}}
{{- fail "auth.oidc.issuer: is required with auth.oidc.audience" -}}
{{- else if and $oidc.clientId (not $oidc.issuer) -}}
{{- fail "auth.oidc.issuer: is required with auth.oidc.clientId" -}}
{{- end -}}
{{- $logins := ternary 1 0 (ne $oidc.clientId "") -}}
{{- range $n, $one := $oidc.issuers -}}
{{- if and (gt (len $oidc.issuers) 1) (not $one.group_prefix) -}}
{{- fail (printf "auth.oidc.issuers[%d].group_prefix: is required with several issuers" $n) -}}
{{- end -}}
{{- if $one.client_id }}{{ $logins = add1 $logins }}{{ end -}}
{{- end -}}
{{- if and $logins (not .Values.auth.console.url) -}}
{{- fail "auth.console.url: is required for logins to the console" -}}
{{- else if and .Values.auth.console.url (not $logins) -}}
{{- fail "auth.console.url: is used only with auth.oidc.clientId, or a client_id in auth.oidc.issuers" -}}
{{- else if and $logins (eq .Values.console "off") -}}
{{- fail "auth.oidc.clientId: is not used with console off" -}}
{{- end -}}
{{- end }}
