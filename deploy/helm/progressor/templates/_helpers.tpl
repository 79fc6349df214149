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

{{/* The scheme of the probes. */}}
{{- define "progressor.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne .Values.tls.existingSecret "") }}
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
