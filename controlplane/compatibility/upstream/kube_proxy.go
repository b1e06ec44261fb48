package main

import (
	_ "k8s.io/component-base/logs/json/register"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
	"k8s.io/kubernetes/pkg/proxy/apis/config/scheme"
)

func main() {
	defaulted := &kubeproxy.KubeProxyConfiguration{}
	scheme.Scheme.Default(defaulted)
	print(defaulted, app.NewProxyCommand().Flags())
}
