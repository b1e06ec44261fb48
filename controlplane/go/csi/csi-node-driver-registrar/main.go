// Command csi-node-driver-registrar tells the kubelet of a CSI driver, in the place of upstream's program of this name,
// whose module the module proxy does not carry. It asks the driver for its name, and answers the kubelet on a socket in its
// folder of plugins. It ends when the kubelet refuses the driver, so that its pod shows the reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type options struct {
	driver, kubelet, folder, health string
	timeout                         time.Duration
}

func main() {
	var asked options
	klog.InitFlags(nil)
	flag.StringVar(&asked.driver, "csi-address", "/run/csi/socket", "the driver's socket, as this program sees it")
	flag.StringVar(&asked.kubelet, "kubelet-registration-path", "", "the driver's socket, as the kubelet sees it")
	flag.StringVar(&asked.folder, "plugin-registration-path", "/registration", "the kubelet's folder of plugins")
	flag.StringVar(&asked.health, "http-endpoint", "", "where to serve /healthz")
	flag.DurationVar(&asked.timeout, "timeout", time.Second, "how long the driver may take to say its name")
	flag.Parse()
	if err := run(asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(asked options) error {
	if asked.kubelet == "" {
		return errors.New("-kubelet-registration-path is needed: the driver's socket, as the kubelet sees it")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name, err := driverName(ctx, asked)
	if err != nil {
		return err
	}
	path := filepath.Join(asked.folder, name+"-reg.sock")
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("cannot remove the last run's socket: %w", err)
	}
	socket, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("cannot listen in the kubelet's folder of plugins: %w", err)
	}
	ended := make(chan error, 3)
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &plugin{name: name, endpoint: asked.kubelet, ended: ended})
	go func() { ended <- server.Serve(socket) }()
	if asked.health != "" {
		go func() { ended <- http.ListenAndServe(asked.health, healthz(path)) }()
	}
	defer server.Stop() // it removes the socket: the kubelet forgets the driver
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// driverName waits for the driver without a limit: its container may be pulling its image.
func driverName(ctx context.Context, asked options) (string, error) {
	connected, err := connection.Connect(ctx, asked.driver, nil, connection.WithTimeout(0))
	if err != nil {
		return "", fmt.Errorf("cannot connect to the driver at %s: %w", asked.driver, err)
	}
	defer connected.Close()
	limited, cancel := context.WithTimeout(ctx, asked.timeout)
	defer cancel()
	name, err := rpc.GetDriverName(limited, connected)
	if err != nil {
		return "", fmt.Errorf("the driver at %s does not say its name: %w", asked.driver, err)
	}
	return name, nil
}

// healthz fails once somebody has removed the socket: the kubelet then takes the driver for gone.
func healthz(path string) http.Handler {
	served := http.NewServeMux()
	served.HandleFunc("/healthz", func(answer http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(path); err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(answer, "ok")
	})
	return served
}

type plugin struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	ended          chan<- error
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: p.name, Endpoint: p.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (p *plugin) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		p.ended <- fmt.Errorf("the kubelet does not register driver %s: %s", p.name, status.GetError())
	} else {
		klog.Infof("the kubelet has registered driver %s", p.name)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
