{{- define "progressor.name" -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
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
