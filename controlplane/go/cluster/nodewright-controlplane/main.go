// Command nodewright-controlplane is etcd, kube-apiserver, kube-controller-manager
// and kube-scheduler in one binary: it runs the one it is named after (argv[0], or
// the first argument). One link shares 100 MB of common code between the four.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"nodewright.dev/cluster/timedbinder"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	// The plugin is only there for a configuration that names it.
	"kube-scheduler": func() *cobra.Command {
		return scheduler.NewSchedulerCommand(scheduler.WithPlugin(timedbinder.Name, timedbinder.New))
	},
}

func main() {
	name := filepath.Base(os.Args[0])
	if components[name] == nil && name != "etcd" && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command := components[name]
	if command == nil {
		fmt.Fprintf(os.Stderr, "unknown component %q: one of etcd, kube-apiserver, kube-controller-manager, kube-scheduler\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
