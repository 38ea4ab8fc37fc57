// Command cri makes a pod as the kubelet does: it asks the runtime at a socket to run a sandbox
// and its containers, and ends when these have started. Or it asks the runtime to stop and remove
// a pod.
//
//	cri SOCKET POD.json
//	cri SOCKET remove NAME
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type pod struct {
	Name, Namespace, UID, CgroupParent, Handler, Image string
	Annotations, Labels                                map[string]string
	Containers                                         []struct {
		Name, Command, Cpus string
		Shares              int64
	}
}

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2:
		err = run(args[0], args[1])
	case len(args) == 3 && args[1] == "remove":
		err = remove(args[0], args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: cri SOCKET POD.json, or cri SOCKET remove NAME")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}

// A guest is slow, and shares two CPUs with other work.
const patience = 5 * time.Minute

func connect(socket string) (cri.RuntimeServiceClient, func() error, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return cri.NewRuntimeServiceClient(conn), conn.Close, nil
}

func remove(socket, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	runtime, end, err := connect(socket)
	if err != nil {
		return err
	}
	defer end()
	all, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for _, s := range all.Items {
		if s.Metadata.Name != name {
			continue
		}
		if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			return err
		}
		_, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.Id})
		return err
	}
	return fmt.Errorf("no pod %s", name)
}

func run(socket, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var p pod
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	runtime, end, err := connect(socket)
	if err != nil {
		return err
	}
	defer end()
	// The host's network, as there is no network plugin. The rest is as the kubelet has it.
	node := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
	// As the kubelet sets them: CRI-O tells plugins the names of containers by these labels.
	labels := map[string]string{"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.uid": p.UID}
	maps.Copy(labels, p.Labels)
	sandbox := &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: p.UID},
		Annotations: p.Annotations, Labels: labels,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: p.CgroupParent, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: node}},
	}
	s, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox, RuntimeHandler: p.Handler}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for _, c := range p.Containers {
		labels := maps.Clone(labels)
		labels["io.kubernetes.container.name"] = c.Name
		made, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: c.Name}, Labels: labels,
			Image:   &cri.ImageSpec{Image: p.Image},
			Command: []string{"/bin/busybox", "sh", "-c", c.Command},
			Mounts:  []*cri.Mount{{ContainerPath: "/host", HostPath: "/sys/fs/cgroup", Readonly: true}, {ContainerPath: "/out", HostPath: "/out"}},
			Linux: &cri.LinuxContainerConfig{
				Resources:       &cri.LinuxContainerResources{CpuShares: c.Shares, CpusetCpus: c.Cpus},
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: node},
			},
		}})
		if err != nil {
			return err
		}
		if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
			return err
		}
	}
	return nil
}
