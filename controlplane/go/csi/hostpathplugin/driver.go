package main

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

// call is what the specs read in the log of a driver that runs in the cluster (test/e2e/storage/drivers/csi.go).
type call struct {
	Method    string
	Request   any
	Response  any
	Error     string
	FullError *rpc.Status
}

// serve is the driver until it is told to end.
func serve(socket net.Listener, asked options) error {
	mock := service.New(service.Config{
		DriverName:                 asked.name,
		DisableAttach:              !asked.attach,
		AttachLimit:                asked.limit,
		EnableTopology:             asked.topology,
		NodeExpansionRequired:      asked.nodeMustExpand,
		DisableControllerExpansion: asked.withoutController,
		PermissiveTargetPath:       asked.withoutPathCheck,
	})
	served := driver.NewCSIDriver(&driver.CSIDriverServers{
		Controller: mock, Identity: mock, Node: &node{NodeServer: mock, inline: map[string]string{}},
	})
	if err := served.Start(socket, logged); err != nil {
		return err
	}
	klog.Infof("driver %s listens on %s", asked.name, socket.Addr())
	told, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-told.Done()
	served.Stop()
	return nil
}

func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	made := call{Method: info.FullMethod, Request: request, Response: response}
	if err != nil {
		made.Error = err.Error()
		made.FullError = status.Convert(err).Proto()
	}
	text, _ := json.Marshal(made)
	klog.V(3).Infof("gRPCCall: %s", text)
	return response, err
}

// node adds to the mock what it lacks. Volumes that are written in a pod: its own code knows none of them and panics. And
// volumes that nobody has attached, after a CSIDriver has been changed to say that it needs no attachment.
type node struct {
	csi.NodeServer
	mutex  sync.Mutex
	inline map[string]string // path by the volume's id
}

// attached is the context of a volume with the device that the mock insists on.
func attached(context map[string]string) map[string]string {
	with := map[string]string{"device": "mock device"}
	maps.Copy(with, context)
	return with
}

func (n *node) NodeStageVolume(
	ctx context.Context, request *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	request.PublishContext = attached(request.GetPublishContext())
	return n.NodeServer.NodeStageVolume(ctx, request)
}

func (n *node) NodePublishVolume(
	ctx context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	if request.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] != "true" {
		request.PublishContext = attached(request.GetPublishContext())
		return n.NodeServer.NodePublishVolume(ctx, request)
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if err := os.MkdirAll(request.GetTargetPath(), 0o755); err != nil {
		return nil, err
	}
	n.inline[request.GetVolumeId()] = request.GetTargetPath()
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) NodeUnpublishVolume(
	ctx context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	path, ours := n.inline[request.GetVolumeId()]
	if !ours {
		return n.NodeServer.NodeUnpublishVolume(ctx, request)
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	delete(n.inline, request.GetVolumeId())
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
