// Command hostpathplugin stands in for upstream's csi-driver-host-path in the specs that do not ask for its volumes.
//
// With -proxy-endpoint it joins connections of its socket with connections of a TCP port, behind which a test is the
// driver (the CSI mock specs with hooks, and DRA's). Without, it is a driver: the mock that upstream's tests carry,
// which makes folders and no mounts. The flags are those that the manifests of these specs use.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strings"

	"k8s.io/klog/v2"
)

type options struct {
	endpoint, proxy, name               string
	attach, topology, nodeMustExpand    bool
	withoutController, withoutPathCheck bool
	limit                               int64
}

func main() {
	var asked options
	klog.InitFlags(nil)
	flag.StringVar(&asked.endpoint, "endpoint", "unix:///tmp/csi.sock", "socket to listen on")
	flag.StringVar(&asked.proxy, "proxy-endpoint", "", "tcp://:PORT to join connections with, instead of a driver")
	flag.StringVar(&asked.name, "drivername", "hostpath.csi.k8s.io", "name of the driver")
	flag.BoolVar(&asked.attach, "enable-attach", false, "volumes are attached to nodes")
	flag.BoolVar(&asked.topology, "enable-topology", false, "volumes are where nodes are")
	flag.BoolVar(&asked.nodeMustExpand, "node-expand-required", false, "the node is asked to expand a volume")
	flag.BoolVar(&asked.withoutController, "disable-controller-expansion", false, "only the node is asked")
	flag.BoolVar(&asked.withoutPathCheck, "permissive-target-path", false, "a target may be there already")
	flag.Int64Var(&asked.limit, "attach-limit", 0, "volumes on a node, 0: any number")
	flag.String("nodeid", "", "the mock names its node after the driver")
	flag.String("statedir", "", "the mock keeps its state in memory")
	flag.Parse()
	if err := run(asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(asked options) error {
	socket, err := listenUnix(asked.endpoint)
	if err != nil {
		return err
	}
	if asked.proxy == "" {
		return serve(socket, asked)
	}
	port, err := net.Listen("tcp", strings.TrimPrefix(asked.proxy, "tcp://"))
	if err != nil {
		return fmt.Errorf("cannot listen on -proxy-endpoint %q: %w", asked.proxy, err)
	}
	return join(socket, port)
}

// listenUnix takes over a socket that a killed process has left: containers are restarted with their folders.
func listenUnix(endpoint string) (net.Listener, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("cannot remove what is at -endpoint %q: %w", endpoint, err)
	}
	socket, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on -endpoint %q: %w", endpoint, err)
	}
	return socket, nil
}
