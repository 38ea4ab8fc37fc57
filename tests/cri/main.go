// Command cri makes a pod as the kubelet does: it has the runtime of a socket run a sandbox
// and its containers, and ends when these have started.
//
//	cri SOCKET POD.json
package main

import (
	"context"
	"encoding/json"
	"fmt"
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
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: cri SOCKET POD.json")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
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
	// A guest is slow, and shares two CPUs.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	runtime := cri.NewRuntimeServiceClient(conn)
	// The host's network: no plugin for networks is there.
	node := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}
	sandbox := &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: p.UID},
		Annotations: p.Annotations, Labels: p.Labels,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: p.CgroupParent, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: node}},
	}
	s, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox, RuntimeHandler: p.Handler}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for _, c := range p.Containers {
		made, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: c.Name},
			Image:    &cri.ImageSpec{Image: p.Image},
			Command:  []string{"/bin/busybox", "sh", "-c", c.Command},
			Mounts:   []*cri.Mount{{ContainerPath: "/host", HostPath: "/sys/fs/cgroup", Readonly: true}, {ContainerPath: "/out", HostPath: "/out"}},
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
