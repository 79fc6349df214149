#!/usr/bin/env bash
# Lints the chart and renders it as users would: with only the required settings, with all settings,
# and with wrong settings.
set -euo pipefail
cd "$(dirname "$0")/../.."
# With -n, go tool builds Helm and prints its path. Running it through go tool is slower.
program=$(go tool -modfile=tools/helm/go.mod -n helm)
# By default, Helm that go tool has built assumes a very old version of Kubernetes.
helm() { "$program" "$1" --kube-version 1.30.0 "${@:2}"; }
chart=deploy/helm/progressor
rendered=$(mktemp)
trap 'rm -f "$rendered"' EXIT
least=(--set database.existingSecret=progressor-db)
all=("${least[@]}" --set serviceMonitor.enabled=true --set networkPolicy.from.role=client
  --set 'config.namespaces[0].namespace=shop' --set tls.existingSecret=tls --set tls.clientCA=true
  --set serviceMonitor.tlsConfig.serverName=progressor
  --set auth.oidc.issuer=https://login.example.com --set auth.oidc.audience=progressor
  --set auth.oidc.caConfigMap=issuers
  --set auth.oidc.clientId=console --set auth.oidc.clientSecret.existingSecret=client
  --set auth.console.url=https://progressor.example.com)
several=("${least[@]}" --set auth.oidc.caConfigMap=issuers
  --set 'auth.oidc.issuers[0].issuer=https://login.example.com,auth.oidc.issuers[0].audience=progressor'
  --set 'auth.oidc.issuers[0].group_prefix=staff:'
  --set 'auth.oidc.issuers[1].issuer=https://partners.example.com,auth.oidc.issuers[1].audience=progressor'
  --set 'auth.oidc.issuers[1].group_prefix=partners:')

# contains LINE... fails unless the rendered chart has the lines.
contains() {
  for line; do
    grep -q -e "$line" "$rendered" || { echo "helm: $chart has no $line"; exit 1; }
  done
}

# rejects ERROR SETTING... fails unless the chart is rejected with the settings, with this error.
rejects() {
  local arguments=("${least[@]}") setting
  for setting in "${@:2}"; do arguments+=(--set "$setting"); done
  if helm template progressor "$chart" "${arguments[@]}" >/dev/null 2>"$rendered" ||
    ! grep -q -F -e "$1" "$rendered"; then
    echo "helm: $chart is not rejected with ${*:2} and the error: $1"; cat "$rendered"; exit 1
  fi
}

helm lint --strict "${least[@]}" "$chart"
helm template progressor "$chart" "${least[@]}" >/dev/null
for kind in Deployment Service Secret PodDisruptionBudget NetworkPolicy ServiceMonitor; do
  helm template progressor "$chart" "${all[@]}" | grep -q "^kind: $kind$" ||
    { echo "helm: $chart creates no $kind"; exit 1; }
done
helm template progressor "$chart" "${all[@]}" >"$rendered"
contains 'scheme: HTTPS}' 'value: /etc/progressor-tls/ca.crt' 'appProtocol: https' \
  'serverName: progressor' 'value: "https://login.example.com"' 'value: /etc/progressor-oidc/ca.crt' \
  'value: /etc/progressor-client/client-secret' 'image: "progressor:0.1.0"' \
  'value: "https://progressor.example.com"'
if grep -q 'scheme: HTTP}' "$rendered"; then
  echo "helm: $chart probes an engine with TLS by HTTP"; exit 1
fi
if helm template progressor "$chart" "${all[@]}" | grep -q "^kind: ConfigMap$"; then
  echo "helm: $chart creates a ConfigMap, which does not protect headers"; exit 1
fi
if helm template progressor "$chart" >/dev/null 2>&1; then
  echo "helm: $chart is rendered without database.existingSecret"; exit 1
fi
if helm template progressor "$chart" "${least[@]}" --set replica=3 >/dev/null 2>&1; then
  echo "helm: $chart accepts a value that it does not know"; exit 1
fi
operated=("${all[@]}" --set opsPort=9090,networkPolicy.scrapers.app=prometheus
  --set database.migrate=false,migrationJob.enabled=true,migrationJob.existingSecret=owner
  --set prometheusRule.enabled=true,prometheusRule.labels.release=monitoring
  --set log.requests=errors --set 'dashboard.enabled=true,extraEnv[0].name=TZ,extraEnv[0].value=UTC'
  --set 'extraVolumes[0].name=more,extraVolumes[0].emptyDir.medium='
  --set 'extraVolumeMounts[0].name=more,extraVolumeMounts[0].mountPath=/more')
helm template progressor "$chart" "${operated[@]}" >"$rendered"
contains 'value: 0.0.0.0:9090' 'httpGet: {path: /readyz, port: ops, scheme: HTTP}' \
  'name: progressor-ops' 'port: ops$' 'app: prometheus' '^kind: Job$' \
  'helm.sh/hook: pre-install,pre-upgrade' 'args: \[migrate, up\]' '^kind: PrometheusRule$' \
  'release: monitoring' 'alert: ProgressorDown' 'name: progressor-dashboard' \
  'grafana_dashboard: "1"' 'name: GOMEMLIMIT' 'name: TZ' 'mountPath: /more' \
  'name: PROGRESSOR_LOG_REQUESTS' 'value: "errors"'
rejects 'database.migrate: must be false' migrationJob.enabled=true \
  migrationJob.existingSecret=owner
rejects 'migrationJob.existingSecret: is required' migrationJob.enabled=true database.migrate=false
rejects opsPort opsPort=8080
rejects requests log.requests=some
# With --reuse-values, a release of an older chart has no log.
helm template progressor "$chart" "${least[@]}" --set log=null >/dev/null
digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
helm template progressor "$chart" "${least[@]}" --set "image.tag=v1.2.3,image.digest=$digest" \
  >"$rendered"
contains "image: \"progressor@$digest\""
rejects digest image.digest=latest
helm template progressor "$chart" "${several[@]}" >"$rendered"
contains 'issuer: https://login.example.com' 'issuer: https://partners.example.com' 'group_prefix: ' \
  'value: /etc/progressor/issuers.yaml' 'mountPath: /etc/progressor-oidc'
issuer=auth.oidc.issuer=https://login.example.com audience=auth.oidc.audience=progressor
first='auth.oidc.issuers[0].issuer=https://a,auth.oidc.issuers[0].audience=a'
second='auth.oidc.issuers[1].issuer=https://b,auth.oidc.issuers[1].audience=b'
rejects 'auth.oidc: is not used with auth.mode none' auth.mode=none "$issuer" "$audience"
rejects 'auth.oidc: is not used with auth.mode none' auth.mode=none "$first"
rejects 'auth.oidc.issuers: cannot be used with auth.oidc.issuer' "$issuer" "$audience" "$first"
rejects 'auth.oidc.audience: is required' "$issuer"
rejects 'auth.oidc.issuer: is required' "$audience"
rejects 'auth.oidc.issuers[1].group_prefix: is required' "$first" "$second" \
  'auth.oidc.issuers[0].group_prefix=a:'
rejects 'auth.oidc.issuer: is required with auth.oidc.clientId' auth.oidc.clientId=a
rejects 'auth.console.url: is required for logins' "$issuer" "$audience" auth.oidc.clientId=a
rejects 'auth.console.url: is required for logins' "$first" 'auth.oidc.issuers[0].client_id=a'
rejects 'auth.console.url: is used only with' auth.console.url=https://a
rejects url "$issuer" "$audience" auth.oidc.clientId=a auth.console.url=http://a
rejects 'is not used with console off' "$issuer" "$audience" auth.oidc.clientId=a \
  auth.console.url=https://a console=off
rejects audience 'auth.oidc.issuers[0].issuer=https://a'
rejects url "$first" 'auth.oidc.issuers[0].url=https://a'
echo "helm: $chart is valid"
