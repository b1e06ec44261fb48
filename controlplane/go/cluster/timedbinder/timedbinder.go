// Package timedbinder is a plugin of kube-scheduler that writes on each pod when the scheduler queued it and when it
// bound it, to the nanosecond: the API tells times of a pod's creation in whole seconds, and a trace of its start would
// have to leave out the time before its node heard of it.
//
// It binds as upstream's DefaultBinder does (pkg/scheduler/framework/plugins/defaultbinder), and sends no request more:
// the API server takes a binding's annotations over to the pod. It takes the first time before a pod is queued, and not
// from an event of its own, which may come after the pod is bound.
package timedbinder

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// Name is the plugin's in a KubeSchedulerConfiguration.
const Name = "TimedBinder"

// The annotations, which agent/pods/plan/scheduled.py reads.
const (
	queuedAt = "nodewright.io/queued-at"
	boundAt  = "nodewright.io/bound-at"
)

type timedBinder struct {
	handle fwk.Handle
	queued sync.Map // types.UID of a pod that waits for a node: time.Time
}

var (
	_ fwk.PreEnqueuePlugin  = &timedBinder{}
	_ fwk.BindPlugin        = &timedBinder{}
	_ fwk.EnqueueExtensions = &timedBinder{}
)

// New creates the plugin.
func New(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	binder := &timedBinder{handle: handle}
	pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*v1.Pod); ok {
				binder.queued.Delete(pod.UID)
			}
		},
	})
	return binder, err
}

func (b *timedBinder) Name() string { return Name }

// PreEnqueue is called before each of a pod's tries.
func (b *timedBinder) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	b.queued.LoadOrStore(pod.UID, time.Now())
	return nil
}

// EventsToRegister is empty: no pod is rejected here, so that no event lets one try again.
func (b *timedBinder) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }

func (b *timedBinder) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: b.times(pod.UID),
		},
		Target: v1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := b.bind(ctx, binding); err != nil {
		return fwk.AsStatus(err)
	}
	b.queued.Delete(pod.UID)
	return nil
}

// times is empty for a pod that was never queued.
func (b *timedBinder) times(uid types.UID) map[string]string {
	queued, ok := b.queued.Load(uid)
	if !ok {
		return nil
	}
	return map[string]string{
		queuedAt: queued.(time.Time).UTC().Format(time.RFC3339Nano),
		boundAt:  time.Now().UTC().Format(time.RFC3339Nano),
	}
}

func (b *timedBinder) bind(ctx context.Context, binding *v1.Binding) error {
	calls := b.handle.APICacher()
	if calls == nil {
		return util.BindPod(ctx, b.handle.ClientSet(), binding)
	}
	finished, err := calls.BindPod(binding)
	if err != nil {
		return err
	}
	return calls.WaitOnFinish(ctx, finished)
}
