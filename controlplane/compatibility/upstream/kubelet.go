package main

import (
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	metricsfeatures "k8s.io/component-base/metrics/features"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
)

func main() {
	// As cmd/kubelet/app and pkg/kubelet/server register them, which need not be compiled for it.
	must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	must(metricsfeatures.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))

	defaulting, _, err := scheme.NewSchemeAndCodecs()
	must(err)
	defaulted := &kubelet.KubeletConfiguration{}
	defaulting.Default(defaulted)

	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	options.NewKubeletFlags().AddFlags(set)
	config, err := options.NewKubeletConfiguration()
	must(err)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	print(defaulted, set)
}
