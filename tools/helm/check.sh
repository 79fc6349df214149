#!/usr/bin/env bash
# Lints the chart and renders it as users would: with what is required alone, and with everything.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Built like this, Helm knows no version of Kubernetes but a very old one.
helm() { go tool -modfile=tools/helm/go.mod helm "$1" --kube-version 1.30.0 "${@:2}"; }
chart=deploy/helm/progressor
rendered=$(mktemp)
trap 'rm -f "$rendered"' EXIT
least=(--set database.existingSecret=progressor-db)
all=("${least[@]}" --set serviceMonitor.enabled=true --set networkPolicy.from.role=client
  --set 'config.namespaces[0].namespace=shop' --set tls.existingSecret=tls --set tls.clientCA=true
  --set serviceMonitor.tlsConfig.serverName=progressor
  --set auth.oidc.issuer=https://login.example.com --set auth.oidc.caConfigMap=issuers
  --set 'auth.oidc.issuers[0].issuer=https://partners.example.com')
helm lint --strict "${least[@]}" "$chart"
helm template progressor "$chart" "${least[@]}" >/dev/null
for kind in Deployment Service Secret PodDisruptionBudget NetworkPolicy ServiceMonitor; do
  helm template progressor "$chart" "${all[@]}" | grep -q "^kind: $kind$" ||
    { echo "helm: $chart creates no $kind"; exit 1; }
done
helm template progressor "$chart" "${all[@]}" >"$rendered"
for line in 'scheme: HTTPS}' 'value: /etc/progressor-tls/ca.crt' 'appProtocol: https' \
  'serverName: progressor' 'value: "https://login.example.com"' 'value: /etc/progressor-oidc/ca.crt' \
  '- issuer: https://partners.example.com' 'value: /etc/progressor/issuers.yaml'; do
  grep -q -e "$line" "$rendered" || { echo "helm: $chart has no $line"; exit 1; }
done
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
  echo "helm: $chart takes a value that it does not know"; exit 1
fi
echo "helm: $chart is well"
