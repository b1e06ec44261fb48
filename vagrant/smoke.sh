#!/usr/bin/env bash
# Run on the control plane (vagrant ssh cp -c 'bash /opt/nodewright/project/vagrant/smoke.sh'): pods on every worker,
# reached by address, by Service and by DNS name from the other ones, and the agent's cgroups as systemd sees them.
set -euo pipefail

export KUBECONFIG=${KUBECONFIG:-$HOME/.kube/config}
image=registry.k8s.io/e2e-test-images/busybox:1.37.0-2
patience=${PATIENCE:-600}s # emulated machines are slow

main() {
  kubectl wait --for=condition=Ready node --all --timeout="$patience"
  kubectl get nodes -o wide
  kubectl -n kube-system rollout status deployment/coredns --timeout="$patience"
  told "the API server takes the manifests" apply
  kubectl rollout status daemonset/smoke --timeout="$patience"
  kubectl wait --for=condition=Ready pod -l app=smoke --timeout="$patience" # a node's lapse does not count for a rollout
  kubectl get pods -l app=smoke -o wide
  local workers pods pod address addresses service
  workers=$(kubectl get pods -l app=smoke -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l)
  mapfile -t pods < <(kubectl get pods -l app=smoke -o name)
  mapfile -t addresses < <(kubectl get pods -l app=smoke -o jsonpath='{range .items[*]}{.status.podIP}{"\n"}{end}')
  service=$(kubectl get service smoke -o jsonpath='{.spec.clusterIP}')
  for pod in "${pods[@]}"; do
    for address in "${addresses[@]}"; do
      told "$pod reaches pod $address" ask "$pod" "http://$address:8080/hostname"
    done
    told "$pod reaches every pod by the Service's address" spread "$pod" "$service"
    told "$pod finds the Service by its name" resolved "$pod" smoke.default.svc.cluster.local "$service"
  done
  for address in $(kubectl get nodes -o jsonpath='{range .items[*]}{.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}'); do
    told "NodePort on $address answers" curl -fsS -m 20 "http://$address:30090/hostname"
  done
  kubectl delete daemonset/smoke service/smoke --wait=true >/dev/null
  echo "smoke: $workers nodes with pods, ${#pods[@]} pods: all reach all"
}

apply() { manifests | command kubectl apply -f -; }

ask() { command kubectl exec "$1" -- wget -q -T 20 -O - "$2"; }

# An emulated control plane that is busy lets a request time out now and then.
kubectl() {
  local tries=0
  until command kubectl "$@"; do
    ((++tries < 5)) || return 1
    sleep 3
  done
}

# As many different answers as there are pods.
spread() {
  local pod=$1 host=$2 seen
  seen=$(command kubectl exec "$pod" -- sh -c "for i in \$(seq 1 $((12 * ${#pods[@]}))); do wget -q -T 20 -O - http://$host/hostname; done")
  (($(sort -u <<<"$seen" | grep -c .) == ${#pods[@]})) || { echo "answers: $(sort <<<"$seen" | uniq -c)" >&2; return 1; }
}

# The image's busybox is linked statically: its wget looks up no names, its nslookup asks by itself.
resolved() { command kubectl exec "$1" -- nslookup -type=a "$2" | grep -qF "Address: $3"; }

told() {
  local what=$1
  shift
  local tries=0
  until "$@" >/dev/null; do
    ((++tries < 5)) || { echo "FAILED $what" >&2; exit 1; }
    sleep 3
  done
  echo "ok     $what"
}

manifests() {
  cat <<END
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: smoke}
spec:
  selector: {matchLabels: {app: smoke}}
  template:
    metadata: {labels: {app: smoke}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: $image
        command: [sh, -c, "mkdir /www && hostname > /www/hostname && exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, timeoutSeconds: 10}
---
apiVersion: v1
kind: Service
metadata: {name: smoke}
spec:
  type: NodePort
  selector: {app: smoke}
  ports: [{port: 80, targetPort: 8080, nodePort: 30090}]
END
}

main
